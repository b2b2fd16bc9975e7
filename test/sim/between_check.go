package sim

// checkBetween reads the outputs back: each event is there, and first behind those before it of its key and partition,
// tombstones among them.
func (w *between) checkBetween() {
	times, failed := map[ID]int{}, map[ID]int{}
	latest := map[string]ID{}
	for _, r := range w.consume(outTopic) {
		id, ok := idOf(streamHeaders(r))
		if !ok {
			w.breach("an output without its headers: %v", r.Headers)
			continue
		}
		for _, h := range r.Headers {
			if h.Key != idHeader {
				w.breach("%v has the header %q, which it did not have", id, h.Key)
			}
		}
		if times[id]++; times[id] > 1 {
			continue
		}
		lane := string(r.Key) + "/" + string(rune('0'+id.Partition))
		if before, ok := latest[lane]; ok && before.Offset > id.Offset {
			w.breach("%v of key %s stands first behind %v", id, r.Key, before)
		}
		latest[lane] = id
	}
	for _, r := range w.consume(errTopic) {
		if id, ok := idOf(streamHeaders(r)); ok {
			failed[id]++
		}
	}
	next := make([]int64, w.partitions)
	for i, rec := range w.events {
		id := ID{rec.Partition, next[rec.Partition]}
		next[rec.Partition]++
		out, bad := 1, 0
		if w.keys[i] == "" {
			out, bad = 0, 1
		}
		switch {
		case min(times[id], 1) != out || min(failed[id], 1) != bad:
			w.breach("%v has %d outputs and %d error events, want %d and %d", id, times[id], failed[id], out, bad)
		case (w.once || w.faults == 0) && times[id]+failed[id] > 1:
			w.breach("%v is written %d times though nothing explains it", id, times[id]+failed[id])
		}
	}
}
