package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// anew reads to the end as it is, whenever a comes new.
func anew(a *kafka.Anew) func(*kafka.SourceConfig) {
	return func(cfg *kafka.SourceConfig) { cfg.Until, cfg.Anew = kafka.Latest, a }
}

func TestAReadThatCameToItsEndBeginsOnceMoreFromThere(t *testing.T) {
	c, cl, _ := fake(t, 2)
	write(t, cl, "in", 0, 0, 3)
	var first kafka.Anew
	r := open(t, c, anew(&first))
	if got := toTheEnd(t, r); got != "0 1 2" {
		t.Fatalf("read %q", got)
	}
	if !r.src.Over() || r.src.Left() != 0 {
		t.Errorf("at the end: over %v, %d left", r.src.Over(), r.src.Left())
	}
	r.src.Close(context.Background())
	write(t, cl, "in", 0, 3, 2)
	write(t, cl, "in", 1, 7, 1)

	// What is made again after a failure has the end that it had.
	again := open(t, c, anew(&first))
	if got := toTheEnd(t, again); got != "" {
		t.Errorf("a source made again read %q", got)
	}
	again.src.Close(context.Background())

	var second kafka.Anew
	next := open(t, c, anew(&second))
	next.untilHeld(t, 2)
	if n := next.src.Left(); n != 3 {
		t.Errorf("%d offsets are left, want 3", n)
	}
	write(t, cl, "in", 1, 8, 1) // too late
	if got := toTheEnd(t, next); got != "3 4 7" && got != "7 3 4" {
		t.Errorf("the second read read %q", got)
	}
	if n := next.log.count("use another group"); n > 0 {
		t.Errorf("it tells to use another group: %s", next.log.text.String())
	}
}

func TestATopicThatHoldsNothingIsToldFromOneThatWasReadBefore(t *testing.T) {
	c, cl, _ := fake(t, 2)
	for _, tt := range []struct {
		name  string
		write int
		read  string
		bare  bool
	}{{"empty", 0, "", true}, {"empty once more", 0, "", true}, {"with a record", 1, "0", false}, {"read before", 0, "", false}} {
		if tt.write > 0 {
			write(t, cl, "in", 1, 0, tt.write)
		}
		r := open(t, c, anew(new(kafka.Anew)))
		if r.src.Bare() {
			t.Errorf("%s: it is bare before anything is known", tt.name)
		}
		if got := toTheEnd(t, r); got != tt.read || r.src.Bare() != tt.bare {
			t.Errorf("%s: read %q, bare %v; want %q, %v", tt.name, got, r.src.Bare(), tt.read, tt.bare)
		}
		r.src.Close(context.Background())
	}
}

func TestAWorkerWithNothingToReadKnowsWhetherOthersHaveReadMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := writer(t, c, dial)
		defer cl.Close()
		for _, tt := range []struct {
			name    string
			write   int
			read    string
			further bool
		}{{"what is there", 3, "0 1 2", true}, {"nothing more", 0, "", false}, {"what has come since", 2, "0 1", true}} {
			write(t, cl, "in", 0, 0, tt.write)
			worker := func() *record {
				return open(t, c, anew(new(kafka.Anew)), func(cfg *kafka.SourceConfig) { cfg.Dialer = dial })
			}
			busy := worker()
			busy.untilHeld(t, 1)
			idle := worker()
			ended := make(chan string, 1)
			go func() { ended <- toTheEnd(t, idle) }()
			wait(5 * time.Second)
			if got := toTheEnd(t, busy); got != tt.read {
				t.Errorf("%s: read %q, want %q", tt.name, got, tt.read)
			}
			busy.src.Close(context.Background())
			if got := <-ended; got != "" || idle.src.Further() != tt.further {
				t.Errorf("%s: the worker with nothing to read has read %q, and others have read meanwhile: %v, want %v", tt.name, got, idle.src.Further(), tt.further)
			}
			idle.src.Close(context.Background())
		}
	})
}

func TestAReadThatWasInterruptedKeepsItsEndAlsoAnew(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 4)
	r := open(t, c, anew(new(kafka.Anew)))
	r.untilHeld(t, 1)
	if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 2})); err != nil {
		t.Fatal(err)
	}
	r.src.Close(context.Background())
	write(t, cl, "in", 0, 4, 2)
	if got := toTheEnd(t, open(t, c, anew(new(kafka.Anew)))); got != "2 3" {
		t.Errorf("it went on with %q, want what was there when it began", got)
	}
}

// A worker without a partition takes part in the read that is under way, and must not begin another when that is over.
func TestWorkersThatBeginTogetherHaveOneEnd(t *testing.T) {
	bubble(t, func(t *testing.T, c *kfake.Cluster, dial dialer) {
		cl := within(t, dial)
		defer cl.Close()
		write(t, cl, "in", 0, 0, 3)
		one := open(t, c, anew(new(kafka.Anew)), over(dial))
		defer one.src.Close(context.Background())
		one.untilHeld(t, 1)
		two := open(t, c, anew(new(kafka.Anew)), over(dial))
		defer two.src.Close(context.Background())
		look, looked := context.WithTimeout(t.Context(), 10*time.Second)
		defer looked()
		if got, err := two.src.Poll(look, 1); err == nil {
			t.Fatalf("the second read %+v", got)
		}
		read := make(chan string, 1)
		go func() { read <- toTheEnd(t, two) }()
		write(t, cl, "in", 0, 3, 2)
		got := toTheEnd(t, one)
		one.src.Close(context.Background())
		if other := <-read; strings.TrimSpace(got+" "+other) != "0 1 2" {
			t.Errorf("the two read %q and %q, want together what was there at the start", got, other)
		}
	})
}

func scan(t *testing.T, c *kfake.Cluster, change ...func(*kafka.SourceConfig)) string {
	t.Helper()
	cfg := kafka.SourceConfig{Connection: kafka.Connection{Brokers: c.ListenAddrs(), Options: quick}, Topics: []string{"in"}, Group: "g"}
	for _, f := range change {
		f(&cfg)
	}
	s, err := kafka.NewSource(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.Scan(ctx, func(r *streammanager.Record) {
		if !r.Marker {
			values = append(values, string(r.Value))
		}
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(values, " ")
}

func TestAScanGivesWhatARunWouldReadAndCommitsNothing(t *testing.T) {
	c, cl, adm := fake(t, 1)
	write(t, cl, "in", 0, 0, 4)
	for range 2 {
		if got := scan(t, c, anew(new(kafka.Anew))); got != "0 1 2 3" {
			t.Errorf("before the first run: %q", got)
		}
	}
	if at, err := adm.ListGroups(t.Context()); err != nil || len(at) > 0 {
		t.Errorf("groups after the scans: %v, %v", at, err)
	}
	r := open(t, c, anew(new(kafka.Anew)))
	r.untilHeld(t, 1)
	if err := r.src.Commit(t.Context(), map[tp]streammanager.Position{{Topic: "in"}: {Offset: 1, Finished: []streammanager.Range{{From: 2, To: 3}}}}); err != nil {
		t.Fatal(err)
	}
	r.src.Close(context.Background())
	write(t, cl, "in", 0, 4, 1)
	if got := scan(t, c, anew(new(kafka.Anew))); got != "1 3" {
		t.Errorf("of a run that was interrupted: %q, want what is not finished up to its end", got)
	}
	toTheEnd(t, open(t, c, anew(new(kafka.Anew))))
	if got := scan(t, c, anew(new(kafka.Anew))); got != "4" {
		t.Errorf("after a run: %q", got)
	}
}

func TestOptionsThatARunTakesAreTakenBesideIt(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 1)
	large := func(cfg *kafka.SourceConfig) {
		cfg.Until, cfg.Options = kafka.Latest, map[string]string{"fetch.max.bytes": "209715200", "max.partition.fetch.bytes": "209715200"}
	}
	if got := scan(t, c, large); got != "0" {
		t.Errorf("the scan gave %q", got)
	}
	cfg := kafka.SourceConfig{Connection: kafka.Connection{Brokers: c.ListenAddrs()}, Topics: []string{"in"}, Group: "g"}
	large(&cfg)
	s, err := kafka.NewSource(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(t.Context()); err != nil {
		t.Errorf("forgetting: %v", err)
	}
}

func TestWhatIsForgottenIsReadFromTheFirstRecord(t *testing.T) {
	c, cl, _ := fake(t, 2)
	write(t, cl, "in", 0, 0, 2)
	forget := func() error {
		s, err := kafka.NewSource(kafka.SourceConfig{
			Connection: kafka.Connection{Brokers: c.ListenAddrs(), Options: quick}, Topics: []string{"in"}, Group: "g", Until: kafka.Latest,
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.Forget(t.Context())
	}
	if err := forget(); err != nil {
		t.Errorf("of a group that there is not: %v", err)
	}
	r := open(t, c, anew(new(kafka.Anew)))
	toTheEnd(t, r)
	if err := forget(); err == nil || !strings.Contains(err.Error(), "it has members: wait until they have ended") {
		t.Errorf("of a group with members: %v", err)
	}
	r.src.Close(context.Background())
	if err := forget(); err != nil {
		t.Fatal(err)
	}
	if got := toTheEnd(t, open(t, c, anew(new(kafka.Anew)))); got != "0 1" {
		t.Errorf("read %q", got)
	}
}

func TestAReadWhoseTopicMustExistEndsWithoutIt(t *testing.T) {
	c, cl, _ := fake(t, 1)
	write(t, cl, "in", 0, 0, 1)
	mustExist := func(cfg *kafka.SourceConfig) {
		cfg.Until, cfg.Anew, cfg.Missing, cfg.Topics = kafka.Latest, new(kafka.Anew), "correct its name", []string{"in", "nosuch"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := open(t, c, mustExist)
	var err error
	for err == nil {
		_, err = r.src.Poll(ctx, 10)
	}
	var fatal *event.FatalError
	if want := `topic "nosuch" does not exist: correct its name`; err.Error() != want || !errors.As(err, &fatal) {
		t.Errorf("Poll ended with %v, want %s, for good", err, want)
	}
	if n := r.log.count(said); n > 0 {
		t.Errorf("it was said that it may heal:\n%s", r.log.text.String())
	}
	cfg := kafka.SourceConfig{Connection: kafka.Connection{Brokers: c.ListenAddrs(), Options: quick}, Group: "g"}
	mustExist(&cfg)
	src, err := kafka.NewSource(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Scan(ctx, func(*streammanager.Record) {}); err == nil || !strings.Contains(err.Error(), "correct its name") {
		t.Errorf("Scan ended with %v", err)
	}
}
