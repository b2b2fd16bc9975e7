package asynchttp_test

import (
	"testing"
	"time"

	"github.com/a0c75104/enricher/functions/asynchttp"
)

var fixedNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestParseRetryAfter(t *testing.T) {
	tests := []struct {
		name, value string
		want        time.Duration
		ok          bool
	}{
		{"seconds", "2", 2 * time.Second, true},
		{"blanks around", " 2 ", 2 * time.Second, true},
		{"zero", "0", 0, true},
		{"a fraction", "0.5", 500 * time.Millisecond, true},
		{"over the cap", "3600", time.Minute, true},
		{"more than a Duration holds", "9223372037", time.Minute, true},
		{"more than an int64 holds", "99999999999999999999999", time.Minute, true},
		{"more than a float holds", "1" + string(make400()), time.Minute, true},
		{"IMF date", "Sun, 01 Mar 2026 12:00:10 GMT", 10 * time.Second, true},
		{"RFC 850 date", "Sunday, 01-Mar-26 12:00:10 GMT", 10 * time.Second, true},
		{"asctime date", "Sun Mar  1 12:00:10 2026", 10 * time.Second, true},
		{"date in the past", "Sun, 01 Mar 2026 11:00:00 GMT", 0, true},
		{"date far ahead", "Fri, 31 Dec 9999 23:59:59 GMT", time.Minute, true},
		{"negative", "-1", 0, false},
		{"plus sign", "+1", 0, false},
		{"exponent", "1e3", 0, false},
		{"infinity", "Inf", 0, false},
		{"hexadecimal", "0x10", 0, false},
		{"half a number", ".5", 0, false},
		{"words", "soon", 0, false},
		{"empty", "", 0, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := asynchttp.ParseRetryAfter(tc.value, fixedNow, time.Minute)
			if got != tc.want || ok != tc.ok {
				t.Errorf("ParseRetryAfter(%q) = %v, %v; want %v, %v", tc.value, got, ok, tc.want, tc.ok)
			}
		})
	}
}

func make400() []byte {
	b := make([]byte, 400)
	for i := range b {
		b[i] = '0'
	}
	return b
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"2", "0.5", "9223372037", "-1", "Sun, 01 Mar 2026 12:00:10 GMT", "Sunday, 01-Mar-26 12:00:10 GMT", "1.", "NaN"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		wait, ok := asynchttp.ParseRetryAfter(value, fixedNow, time.Minute)
		if wait < 0 || wait > time.Minute {
			t.Errorf("ParseRetryAfter(%q) = %v, want 0 to 1m", value, wait)
		}
		if !ok && wait != 0 {
			t.Errorf("ParseRetryAfter(%q) = %v although it is none", value, wait)
		}
	})
}
