package window

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Config says when a window closes. The zero Config is a window of one event.
type Config struct {
	Count   int           // events at most; 0: 1 if Timeout is 0 too, else no bound
	Bytes   int64         // bytes at most; 0: no bound
	Timeout time.Duration // after the first event entered; 0: a window of one event
	Eager   bool          // the stream also closes windows when a worker is idle
}

// Validate reports everything that is wrong with c, in one line. A window of more than one event needs a timeout,
// since events of a key that falls silent would wait in it for ever.
func (c Config) Validate() error {
	var wrong []string
	if c.Count < 0 {
		wrong = append(wrong, fmt.Sprintf("count %d is negative", c.Count))
	}
	if c.Bytes < 0 {
		wrong = append(wrong, fmt.Sprintf("bytes %d is negative", c.Bytes))
	}
	if c.Timeout < 0 {
		wrong = append(wrong, fmt.Sprintf("timeout %v is negative", c.Timeout))
	}
	if c.Timeout == 0 {
		const hint = "needs a timeout, for example 500ms; without one each event is a window"
		if c.Count > 1 {
			wrong = append(wrong, fmt.Sprintf("count %d %s", c.Count, hint))
		}
		if c.Bytes > 0 {
			wrong = append(wrong, fmt.Sprintf("bytes %d %s", c.Bytes, hint))
		}
		if c.Eager {
			wrong = append(wrong, "eager "+hint)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(wrong, "; "))
}

// bounds returns the events and bytes at which a window closes.
func (c Config) bounds() (count int, bytes int64) {
	count, bytes = c.Count, c.Bytes
	if count == 0 {
		count = math.MaxInt
	}
	if c.Timeout == 0 {
		count = 1
	}
	if bytes == 0 {
		bytes = math.MaxInt64
	}
	return count, bytes
}

// Reason is why a window closed.
type Reason string

// The reasons.
const (
	ByCount       Reason = "count"       // it has Count events
	ByBytes       Reason = "bytes"       // it has Bytes, or the next event would have lifted it above
	ByTimeout     Reason = "timeout"     // Timeout has passed since its first event entered
	ByEager       Reason = "eager"       // a worker was idle
	ByLimits      Reason = "limits"      // the stream has no room for more events
	ByDrain       Reason = "drain"       // the stream stops
	ByTransaction Reason = "transaction" // the transaction ends
	ByBarrier     Reason = "barrier"     // a tombstone must not overtake it
)
