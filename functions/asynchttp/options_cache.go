package asynchttp

import (
	"net/http"

	"github.com/a0c75104/enricher/functions"
)

// CacheOptions say for how long answers are kept.
type CacheOptions struct {
	TTL         functions.Duration `yaml:"ttl" doc:"how old an answer may be that an event gets, from when it was asked for" required:"true"`
	MaxBytes    functions.Size     `yaml:"max_bytes" doc:"memory for what is kept; what was not used for longest goes first" default:"16MiB"`
	NegativeTTL functions.Duration `yaml:"negative_ttl" doc:"the same for 404, 410 and no_match; 0: they are not kept" default:"0s"`
}

// leastCache has room for a few hundred small answers.
const leastCache = 64 << 10

// checkCache finds what is wrong with keeping answers.
func (o *Options) checkCache(wrong finding) {
	c := o.Cache
	if c == nil {
		return
	}
	const at = "cache"
	switch {
	case o.Method == http.MethodPost && !o.Idempotent:
		wrong(at, "a POST may change something, and is made for each event: write idempotent: true if it only looks something up")
	case o.Method != http.MethodPost && o.Method != http.MethodGet:
		wrong(at, "%s changes something, and is made for each event: only what looks something up may be kept", o.Method)
	case o.Bulk != nil:
		wrong(at, "with bulk events are asked for together, and nothing is kept of an answer: leave one of them out")
	}
	if c.TTL <= 0 {
		wrong(at+".ttl", "write a duration above 0")
	}
	if c.MaxBytes < leastCache {
		wrong(at+".max_bytes", "%v has no room: write %v or more", c.MaxBytes, functions.Size(leastCache))
	}
}
