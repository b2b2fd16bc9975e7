package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/a0c75104/enricher/kafka"
)

// A quota is kept to by waiting.
func TestARecordThatAQuotaRefusesIsWrittenWhenItMay(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		w := made(t, dial)
		refused := refuse(c, kmsg.Produce, kerr.ThrottlingQuotaExceeded, -1)
		time.AfterFunc(10*time.Second, refused.Remove)
		if err := w.send(t, to("in"))[0]; err != nil {
			t.Error(err)
		}
		if refused.Hits() < 2 {
			t.Errorf("it was refused %d times, want several: this test needs it", refused.Hits())
		}
	})
}

func TestARecordWaitsForOthersNoLongerThanLinger(t *testing.T) {
	for option, most := range map[string]time.Duration{"": 20 * time.Millisecond, "0": 10 * time.Millisecond, "500": 520 * time.Millisecond} {
		bubble(t, func(t *testing.T, _ *kfake.Cluster, dial dialer) {
			w := made(t, dial, func(cfg *kafka.SinkConfig) {
				if option != "" {
					cfg.Options = map[string]string{"linger.ms": option}
				}
			})
			w.send(t, to("in")) // the first finds the way
			began := time.Now()
			if err := w.send(t, to("in"))[0]; err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > most {
				t.Errorf("linger.ms %q: a record alone took %v, want at most %v", option, took, most)
			}
		})
	}
}
