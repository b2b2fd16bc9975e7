package kafka_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/a0c75104/enricher/kafka"
)

// What still asks a client that is being closed would else leave a trouble that never heals.
func TestAClientThatIsClosedIsNoTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		said bool
	}{
		"by itself":                   {kgo.ErrClientClosed, false},
		"in the answer of a shard":    {&kadm.ShardErrors{Name: "DescribeConfigs", Errs: []kadm.ShardError{{Err: kgo.ErrClientClosed}}}, false},
		"another answer is a trouble": {&kadm.ShardErrors{Name: "DescribeConfigs", Errs: []kadm.ShardError{{Err: errors.New("no")}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			log := &lines{}
			open := kafka.NoteTrouble(slog.New(slog.NewTextHandler(log, nil)), fmt.Errorf("asking the brokers: %w", tc.err))
			if said := log.count("trouble") > 0; said != tc.said || (open != nil) != tc.said {
				t.Errorf("said %v and left %v, want it said: %v", said, open, tc.said)
			}
		})
	}
}
