package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a0c75104/enricher/kafka"
)

func TestABoundedReadThatFindsNothingSaysWhy(t *testing.T) {
	const all, none, behind, left = "all is read up to the end", "nothing lies between start and until", "nothing is left to read", "leaves out what lies between start"
	early, late := hour(2).Format(time.RFC3339), hour(5).Format(time.RFC3339)
	for name, tt := range map[string]struct {
		first, second []string // start and until
		force         bool
		read          string
		says          []string
		left          int // of what was never read
	}{
		"of all that there is":           {second: []string{"earliest", "latest"}, read: "1 2 3 5 8", says: []string{all}},
		"nothing lies there":             {second: []string{hour(2).Add(time.Minute).Format(time.RFC3339), hour(2).Add(time.Hour).Format(time.RFC3339)}, says: []string{none}},
		"an earlier start":               {first: []string{late, "latest"}, second: []string{early, "latest"}, says: []string{behind, left}, left: 2},
		"an earlier start, by force":     {first: []string{late, "latest"}, second: []string{early, "latest"}, force: true, says: []string{behind, left}, left: 2},
		"the first record":               {first: []string{late, "latest"}, second: []string{"earliest", "latest"}, says: []string{behind, left}, left: 3},
		"a later start":                  {first: []string{early, "latest"}, second: []string{late, "latest"}, says: []string{behind}},
		"the same start and another end": {first: []string{"earliest", late}, second: []string{"earliest", "latest"}, read: "5 8", says: []string{all}},
		"an earlier start and more":      {first: []string{hour(3).Format(time.RFC3339), late}, second: []string{early, "latest"}, read: "5 8", says: []string{all, left}, left: 1},
		"without an end before":          {first: []string{"earliest", ""}, second: []string{early, "latest"}, says: []string{behind, left}, left: 4},
		"without an end, from the first": {first: []string{"earliest", ""}, second: []string{"earliest", "latest"}, says: []string{behind}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, cl, _ := fake(t, 1)
			writeAt(t, cl, 0, 1, 2, 3, 5, 8)
			if tt.first != nil {
				r := open(t, c, ranged(tt.first[0], tt.first[1]))
				if tt.first[1] == "" {
					r.poll(t, 5)
					if err := r.src.Commit(t.Context(), at(map[tp]int64{{Topic: "in"}: 5})); err != nil {
						t.Fatal(err)
					}
				} else {
					toTheEnd(t, r)
				}
				r.src.Close(context.Background())
			}
			for range 2 { // nor does a restart forget it
				r := open(t, c, ranged(tt.second[0], tt.second[1]), func(cfg *kafka.SourceConfig) { cfg.Force = tt.force })
				if got := toTheEnd(t, r); got != tt.read {
					t.Errorf("read %q, want %q", got, tt.read)
				}
				r.src.Close(context.Background())
				for _, text := range []string{all, none, behind, left} {
					if got, want := r.log.count(text) == 1, slices.Contains(tt.says, text); got != want {
						t.Errorf("it says %q: %v, want %v: %s", text, got, want, r.log.text.String())
					}
				}
				if tt.left > 0 && r.log.count(fmt.Sprintf("left_out=%d", tt.left)) != 1 {
					t.Errorf("it does not say that %d are left out: %s", tt.left, r.log.text.String())
				}
				tt.read, tt.says, tt.left = "", []string{behind}, 0
			}
		})
	}
}

func TestWhatWasLeftOutOnceIsLeftOutStill(t *testing.T) {
	c, cl, _ := fake(t, 1)
	writeAt(t, cl, 0, 1, 2, 3, 5, 8)
	for i, start := range []int{5, 2, 1} {
		r := open(t, c, ranged(hour(start).Format(time.RFC3339), "latest"))
		toTheEnd(t, r)
		r.src.Close(context.Background())
		if want := []string{"", "left_out=2", "left_out=3"}[i]; want != "" && r.log.count(want) != 1 {
			t.Errorf("from hour %d: want %s in %s", start, want, r.log.text.String())
		}
	}
}
