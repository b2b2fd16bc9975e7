package kafka

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// moment is a place in a topic: its first record, its end, or the first record of a time or later.
type moment struct {
	word string        // Earliest or Latest; empty: a time
	ago  time.Duration // before the look at the clock
	at   time.Time     // where ago is 0
}

// leastMillis is the least number that is taken for milliseconds since 1970, in 1973. What is less is mostly seconds.
const leastMillis = 100_000_000_000

// parseMoment reads what start and until may be: a time, or one of words.
func parseMoment(text string, words ...string) (moment, error) {
	if slices.Contains(words, text) {
		return moment{word: text}, nil
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms >= 0 {
		return ofMillis(ms)
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return moment{at: at}, nil
	}
	ago, err := time.ParseDuration(text)
	switch {
	case err == nil && ago < 0:
		return moment{ago: -ago}, nil
	case err == nil && ago > 0 && !strings.HasPrefix(text, "+"):
		return moment{}, fmt.Errorf("%q lies ahead: write -%s for so long ago", text, text)
	}
	if hours := inHours(text); hours != "" {
		return moment{}, fmt.Errorf("%q is no age, whose longest unit is the hour: write %s", text, hours)
	}
	const times = "a time as 2026-01-31T08:00:00Z, as milliseconds since 1970, or as an age such as -24h"
	switch len(words) {
	case 0:
		return moment{}, fmt.Errorf("%q is no %s", text, strings.TrimPrefix(times, "a "))
	case 1:
		return moment{}, fmt.Errorf("%q is neither %s nor %s", text, words[0], times)
	}
	return moment{}, fmt.Errorf("%q is neither %s, nor %s", text, strings.Join(words, " nor "), times)
}

// ofMillis returns the time that is ms after 1970, and refuses what was meant as seconds.
func ofMillis(ms int64) (moment, error) {
	m := moment{at: time.UnixMilli(ms)}
	day := m.at.UTC().Format(time.DateOnly)
	switch {
	case ms >= leastMillis:
		return m, nil
	case ms*1000 >= leastMillis:
		return moment{}, fmt.Errorf("%d is %s: milliseconds are wanted, write %d", ms, day, ms*1000)
	}
	return moment{}, fmt.Errorf("%d is %s: milliseconds since 1970 are wanted, %d or more", ms, day, int64(leastMillis))
}

// inHours returns an age of days or weeks as one of hours, "" where text is none.
func inHours(text string) string {
	for unit, hours := range map[string]int64{"d": 24, "w": 7 * 24} {
		number, ok := strings.CutSuffix(text, unit)
		if n, err := strconv.ParseInt(strings.TrimPrefix(number, "-"), 10, 16); ok && err == nil && n > 0 {
			return fmt.Sprintf("-%dh", n*hours)
		}
	}
	return ""
}

// ParseTime reads a time as start and until take it: RFC 3339, milliseconds since 1970, or an age such as -24h, which
// is seen from now. name is the same for times that are the same, and begins with a minus for an age.
func ParseTime(text string, now time.Time) (at time.Time, name string, err error) {
	m, err := parseMoment(text)
	switch {
	case err != nil:
		return at, "", err
	case m.time(now).After(now):
		return at, "", fmt.Errorf("%s lies in the future", text)
	}
	return m.time(now), m.String(), nil
}

// String is the same for moments that are the same.
func (m moment) String() string {
	switch {
	case m.word != "":
		return m.word
	case m.ago > 0:
		return "-" + m.ago.String()
	}
	return m.at.UTC().Format(time.RFC3339Nano)
}

// written is a time as start and until may be written.
func written(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// time returns the time that m is at, seen from now.
func (m moment) time(now time.Time) time.Time {
	switch {
	case m.word == Earliest:
		return time.Time{}
	case m.word == Latest:
		return now
	case m.ago > 0:
		return now.Add(-m.ago)
	}
	return m.at
}

// millis is that time as Kafka writes the times of records.
func (m moment) millis(now time.Time) int64 { return m.time(now).UnixMilli() }

// checkMoments reads start and until, and refuses what leaves nothing to read.
func (s *Source) checkMoments() error {
	c, now := &s.cfg, time.Now()
	if c.Start == "" {
		c.Start = Earliest
	}
	var err error
	if s.start, err = parseMoment(c.Start, Earliest, Latest); err != nil {
		return keyErrorf("start", "%w", err)
	}
	if s.start.time(now).After(now) {
		return keyErrorf("start", "%s lies in the future: write %s for what comes from now on", c.Start, Latest)
	}
	if c.Until == "" {
		if c.Force {
			return keyErrorf("start", "force is of use beside until only: without an end, start holds only where the group has committed nothing")
		}
		return nil
	}
	if c.Until == Earliest {
		return keyErrorf("until", "nothing lies before the first record: write %s, or a time", Latest)
	}
	if s.until, err = parseMoment(c.Until, Latest); err != nil {
		return keyErrorf("until", "%w", err)
	}
	switch {
	case s.until.time(now).After(now):
		return keyErrorf("until", "%s lies in the future, where no offset is known: write %s for all that is there at the start", c.Until, Latest)
	case s.start.word == Latest || !s.start.time(now).Before(s.until.time(now)):
		return keyErrorf("until", "nothing lies between start %s and until %s", c.Start, c.Until)
	}
	s.reading = s.start.String() + ".." + s.until.String()
	return nil
}
