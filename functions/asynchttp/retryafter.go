package asynchttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ParseRetryAfter reads the value of a Retry-After header: seconds, also with a fraction, or a date in
// one of HTTP's three forms, counted from now. The wait is at most limit, however large the value; a
// date that is past gives 0. ok is false for what is none of these, such as a negative number.
func ParseRetryAfter(value string, now time.Time, limit time.Duration) (wait time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if whole, fraction, found := strings.Cut(value, "."); digits(whole) && (!found || digits(fraction)) {
		// A number too long for a float is +Inf (and an error), which the cap takes care of.
		seconds, _ := strconv.ParseFloat(value, 64)
		if seconds >= limit.Seconds() {
			return limit, true
		}
		return time.Duration(seconds * float64(time.Second)), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), limit), true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// retryAfter reads the header of an answer. Dates are counted from the server's own clock where the
// answer tells it, so that a clock that is off does not lengthen or shorten the wait.
func retryAfter(h http.Header, limit time.Duration) (time.Duration, bool) {
	value := h.Get("Retry-After")
	if value == "" {
		return 0, false
	}
	now := time.Now()
	if served, err := http.ParseTime(h.Get("Date")); err == nil {
		now = served
	}
	return ParseRetryAfter(value, now, limit)
}
