package asynchttp

import (
	"crypto/sha256"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// cacheKey stands for a request. It is a hash, so that no credentials of a URL or a header are kept or shown.
type cacheKey [sha256.Size]byte

// keptAnswer is an answer for several events. Nobody writes to what is in it but the cache, under its lock.
type keptAnswer struct {
	status   int
	header   http.Header // nil where no expression looks at it
	text     []byte      // as JSON; nil: it could not be read
	excerpt  string
	secrets  []string  // that the host was shown, since an answer may repeat them
	asked    time.Time // when the try began that brought it
	until    time.Time // any event may have it before; zero: those alone that waited for it
	negative bool      // it says that there is nothing
	large    bool      // it was too large to be kept: each event asks by itself

	// Guarded by the lock of the cache.
	flight  uint64 // the request that brought it: events that waited for that may have it, however old
	waiting int    // how many may still come for that
	size    int64
}

// entryBytes is what an answer takes beside its own bytes: the key, its places in the list and the map, and what is
// noted of it.
const entryBytes = 512

// cache is what one function keeps of answers, and what it knows of requests that are on their way. Nothing in it waits
// or reads a clock.
type cache struct {
	max    int64
	call   time.Duration // that a call takes at most
	meters *cacheMeters

	mu      sync.Mutex // guards all below
	lru     *simplelru.LRU[cacheKey, *keptAnswer]
	bytes   int64
	flights map[cacheKey]*flight
	last    uint64 // number that was given last
}

func newCache(o *CacheOptions, call time.Duration, meters *cacheMeters) *cache {
	s := &cache{max: o.MaxBytes.Bytes(), call: call, meters: meters, flights: map[cacheKey]*flight{}}
	// Bytes bound it, not a number of answers. The error is that of a size below 1.
	s.lru, _ = simplelru.NewLRU(math.MaxInt, func(_ cacheKey, a *keptAnswer) { s.bytes -= a.size })
	return s
}

// find returns what is kept for an event. The caller holds the lock.
func (s *cache) find(key cacheKey, l *look, now time.Time) (a *keptAnswer, shared bool) {
	a, known := s.lru.Get(key)
	if !known {
		return nil, false
	}
	if shared = l.lead == 0 && l.flight == a.flight; shared {
		l.flight = 0
		a.waiting--
	}
	fresh := now.Before(a.until)
	if !fresh && a.waiting <= 0 {
		s.lru.Remove(key)
		s.measure()
	}
	if !fresh && !shared || !a.asked.After(l.after) {
		if shared {
			l.again()
		}
		return nil, false
	}
	return a, shared
}

// put keeps an answer, as long as there is somebody to have it. The caller holds the lock.
func (s *cache) put(key cacheKey, a *keptAnswer, now time.Time) {
	defer s.measure()
	old, known := s.lru.Peek(key)
	if known && old.asked.After(a.asked) {
		return
	}
	if known {
		s.lru.Remove(key)
	}
	if !now.Before(a.until) && a.waiting == 0 {
		return
	}
	if a.size = a.bytes(); a.size > s.max {
		*a = keptAnswer{large: true, asked: a.asked, until: a.until, flight: a.flight, waiting: a.waiting, size: entryBytes}
	}
	for s.bytes+a.size > s.max {
		_, old, _ := s.lru.RemoveOldest()
		if now.Before(old.until) {
			s.meters.evictions.Inc()
		}
	}
	s.bytes += a.size
	s.lru.Add(key, a)
}

// measure tells the metrics what is kept. The caller holds the lock.
func (s *cache) measure() {
	s.meters.bytes.Set(float64(s.bytes))
	s.meters.entries.Set(float64(s.lru.Len()))
}

// bytes is the memory that an answer takes. Go rounds up what is allocated, by an eighth at most.
func (a *keptAnswer) bytes() int64 {
	n := len(a.text) + len(a.excerpt)
	for _, secret := range a.secrets {
		n += len(secret) + entryBytes/8
	}
	for name, values := range a.header {
		n += len(name) + entryBytes/4
		for _, v := range values {
			n += len(v) + entryBytes/8
		}
	}
	return int64(n+n/8) + entryBytes
}
