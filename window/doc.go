// Package window keeps the order of keys: lanes, in which events wait for earlier unfinished events of
// their key, and windows, in which events gather into the batches that are dispatched.
//
// # The idea
//
// Calls are slow, so many run at once; order matters, but only within a key. Two rules give both:
//
//   - A key is in at most one open window or batch. A batch is a window that closed and whose events of
//     that key have not been freed.
//   - An event enters the open window of its group when its key is idle, or when all earlier unfinished
//     events of its key are in that same window. Else it waits in the lane of its key.
//
// So a window holds only events that may be dispatched, whatever else is going on: nothing in a window
// waits for something outside it, and nothing can lock up. A slow key keeps its own lane and no other.
// With events written as key and number and windows of two events, this is what happens:
//
//	Add a1        window [a1]
//	Add a2        window closes: batch [a1 a2]
//	Add a3        a is in a batch: lane of a [a3]
//	Add b1        window [b1], since b waits for nobody
//	Free a        a3 leaves the lane: window [a3]
//
// The group decides which events share a window. It is the key itself unless the user groups by
// something else; then several keys share a window, and two events of one key may belong to different
// groups. In that case the later one waits until the earlier one is freed. A key that is freed fills at
// most one window, so a long lane takes its turns like everybody else.
//
// A window closes when it has Count events, at Bytes (an event that would lift it above Bytes closes it
// first and is not part of it), and Timeout after the first event entered it. The caller may close it
// earlier for reasons of its own. The zero Config makes each event a batch.
//
// Events without a key have no lane. They share a window per partition and group.
//
// # Use
//
// [Windows.Add] takes events in the order they were read; [Windows.Take] hands out the batches. When
// all events of a key in its batch are finished, [Windows.Free] lets the key go on. [Windows.Next] says
// when [Windows.Expire] has something to do. [Windows.Drop] forgets a partition that was taken away.
//
// # What it leaves to others
//
// The package is pure: it starts no goroutine, reads no clock (the time is an argument) and knows
// nothing of sources, functions or sinks. A Windows is used by one goroutine. What it costs depends on
// the events that are inside, not on the keys ever seen: an empty lane does not exist.
package window
