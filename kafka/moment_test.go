package kafka_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/a0c75104/enricher/kafka"
)

func TestMomentsThatMeanNothingAreRefused(t *testing.T) {
	for _, tt := range []struct {
		start, until string
		force        bool
		key, want    string
	}{
		{start: "yesterday", key: "start", want: "a time as 2026-01-31T08:00:00Z"},
		{start: "24h", key: "start", want: "write -24h"},
		{start: "2020-01-01", key: "start", want: "neither earliest nor latest"},
		{start: "-24", key: "start", want: "neither"},
		{start: "2999-01-01T00:00:00Z", key: "start", want: "lies in the future: write latest"},
		{start: "-7d", key: "start", want: "write -168h"},
		{start: "2w", key: "start", want: "write -336h"},
		{start: "0", key: "start", want: "0 is 1970-01-01: milliseconds since 1970 are wanted, 100000000000 or more"},
		{start: "99999999999", key: "start", want: "99999999999 is 1973-03-03: milliseconds are wanted, write 99999999999000"},
		{until: "1700000000", key: "until", want: "1700000000 is 1970-01-20: milliseconds are wanted, write 1700000000000"},
		{until: "soon", key: "until", want: `"soon" is neither latest nor a time as 2026-01-31T08:00:00Z`},
		{until: "earliest", key: "until", want: "nothing lies before the first record: write latest, or a time"},
		{until: "2999-01-01T00:00:00Z", key: "until", want: "lies in the future"},
		{start: "latest", until: "latest", key: "until", want: "nothing lies between"},
		{start: "-1h", until: "-2h", key: "until", want: "nothing lies between"},
		{start: "2020-01-02T00:00:00Z", until: "2020-01-01T00:00:00Z", key: "until", want: "nothing lies between start 2020-01-02T00:00:00Z and until 2020-01-01T00:00:00Z"},
		{start: "earliest", force: true, key: "start", want: "beside until only"},
	} {
		_, err := kafka.NewSource(kafka.SourceConfig{
			Connection: kafka.Connection{Brokers: []string{"h:1"}}, Topics: []string{"in"}, Group: "g", Start: tt.start, Until: tt.until, Force: tt.force,
		}, nil)
		var key *kafka.KeyError
		if !errors.As(err, &key) || key.Key != tt.key || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("start %q until %q force %v: %v, want %q of key %q", tt.start, tt.until, tt.force, err, tt.want, tt.key)
		}
	}
}
