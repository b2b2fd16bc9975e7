//go:build synctests

package kafka_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// It runs with the build tag synctests alone; see tagged.
//
// Whenever in its looks the brokers answer again, the sink is well soon after.
func TestASinkIsWellSoonAfterBrokersThatStalled(t *testing.T) {
	for _, ms := range []int{11500, 11800, 12100, 12400, 12700} {
		bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
			w := made(t, dial)
			r := to("in")
			if err := w.Check(&r); err != nil {
				t.Fatal(err)
			}
			w.send(t, r)
			wait(10 * time.Second)
			var stall atomic.Pointer[chan struct{}]
			var held atomic.Int64
			for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.Produce} {
				c.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					if ch := stall.Load(); ch != nil {
						turn := time.Duration(held.Add(1)) // two that go on at one instant can block the fake broker for good
						c.SleepControl(func() { <-*ch; wait(turn * time.Microsecond) })
					}
					return nil, nil, false
				})
			}
			ch := make(chan struct{})
			stall.Store(&ch)
			time.AfterFunc(time.Duration(ms)*time.Millisecond, func() { stall.Store(nil); close(ch) })
			if err := w.send(t, r)[0]; err != nil {
				t.Error(err)
			}
			began := time.Now()
			for w.Health() != nil && time.Since(began) < 10*time.Minute {
				if n := time.Since(began).Round(time.Second); n%(30*time.Second) == 0 {
					w.send(t, r)
				}
				wait(time.Second)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("ill for %v after brokers answered that had stalled for %d ms", took, ms)
			}
			wait(time.Second) // the last of those held has gone on
		})
	}
}
