package pipeline

import (
	"context"
	"fmt"

	"github.com/a0c75104/enricher/event"
	"github.com/a0c75104/enricher/streammanager"
)

// keyOf returns what orders an event: the canonical JSON array of the values at the fields. Equal
// values make equal keys, however they are spelled; numbers are equal when they are spelled alike.
func (p *partitionBy) keyOf(_ context.Context, ev *event.Event) (streammanager.Key, error) {
	key := make([]byte, 0, 64)
	for i, f := range p.Fields {
		raw, err := ev.Get(f.Path)
		if err != nil {
			return streammanager.Key{}, err
		}
		if raw == nil || string(raw) == "null" {
			return p.without(f.String())
		}
		sep := byte(',')
		if i == 0 {
			sep = '['
		}
		if key, err = event.AppendCanonical(append(key, sep), raw); err != nil {
			return streammanager.Key{}, event.Reject(event.InvalidEvent, fmt.Errorf("making the key of %s: %w", f, err))
		}
	}
	return streammanager.Key{Value: string(append(key, ']'))}, nil
}

func (p *partitionBy) without(field string) (streammanager.Key, error) {
	switch p.Missing {
	case "keyless":
		return streammanager.Key{Keyless: true}, nil
	case "drop":
		return streammanager.Key{Drop: true}, nil
	default:
		return streammanager.Key{}, event.Rejectf(event.MissingKey, "%s is missing or null, and partition_by names it", field)
	}
}
