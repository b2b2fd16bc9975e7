package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/a0c75104/enricher/kafka"
	"github.com/a0c75104/enricher/streammanager"
)

// Drawable lists what a plan may hold.
func Drawable() []string {
	names := append([]string(nil), faultNames[:]...)
	for _, act := range actNames {
		if act != "fatal" {
			names = append(names, act+" in a call")
		}
		if act != "fatal" {
			names = append(names, act+" in a batch")
		}
	}
	for name := range new(Plan).features() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Drawn lists what of Drawable a plan holds, each once.
func (p *Plan) Drawn() []string {
	has := map[string]bool{}
	for _, f := range p.faults {
		has[faultNames[f.kind]] = true
	}
	for _, in := range p.inputs {
		for i, a := range in.acts {
			switch s := p.steps[i]; {
			case s.batch:
				has[actNames[a.kind]+" in a batch"] = true
			case !s.inline:
				has[actNames[a.kind]+" in a call"] = true
			}
		}
	}
	for name, is := range p.features() {
		has[name] = has[name] || is
	}
	var names []string
	for name, is := range has {
		if is {
			names = append(names, name)
		}
	}
	return names
}

// features tells what else is worth counting.
func (p *Plan) features() map[string]bool {
	some := func(is func(*input) bool) bool { return slices.ContainsFunc(p.inputs, is) }
	does := func(is func(act) bool) bool {
		return some(func(in *input) bool { return slices.ContainsFunc(in.acts, is) })
	}
	f := map[string]bool{
		"a hold beyond every stop":            does(func(a act) bool { return a.kind == actHold && a.wait > 30*time.Second }),
		"event.Fatal":                         does(func(a act) bool { return a.kind == actFatal }),
		"on_error: stop":                      p.deaths > 0 && does(func(a act) bool { return a.stops && a.kind != actFatal }),
		"no error sink":                       p.byID != nil && !p.set.errorSink,
		"a window of several keys":            p.set.byGroup,
		"an eager window":                     p.set.window.Eager,
		"no window":                           p.byID != nil && p.set.window.Timeout == 0,
		"a chain without calls":               p.byID != nil && p.inlineOnly(),
		"a record refused for its size":       some(func(in *input) bool { return in.poison }),
		"a tombstone":                         some(func(in *input) bool { return in.value == nil }),
		"a transaction":                       some(func(in *input) bool { return in.txn }),
		"an aborted transaction":              some(func(in *input) bool { return in.aborted > 0 }),
		"a limit of events":                   p.set.limits.InFlightEvents > 0,
		"a limit of bytes":                    p.set.limits.InFlightBytes > 0,
		"a limit of uncommitted events":       p.set.limits.UncommittedEvents > 0,
		"no fault":                            p.byID != nil && len(p.faults) == 0,
		"several members from the start":      p.members > 1,
		"a key read from the value":           p.set.byValue,
		"exactly once":                        p.exactlyOnce,
		"a repartition topic":                 p.through > 0,
		"a repartition topic in transactions": p.through > 0 && p.exactlyOnce,
		"a bounded read":                      p.bounded,
		"static members":                      p.static,
		"an event without a key":              some(func(in *input) bool { return in.kind == keyless }),
		"a key that drops its event":          some(func(in *input) bool { return in.kind == keyDropped }),
		"a key that is missing":               some(func(in *input) bool { return in.kind == keyMissing }),
		"a filtered event":                    some(func(in *input) bool { return in.filtered }),
	}
	for _, policy := range []string{kafka.Earliest, kafka.Latest, kafka.Fail} {
		f["out_of_range: "+policy] = p.outOfRange == policy
	}
	for _, order := range []streammanager.Order{streammanager.OrderKey, streammanager.OrderKeySerial, streammanager.OrderNone} {
		f[fmt.Sprintf("order: %s", order)] = p.set.order == order
	}
	for _, mode := range []streammanager.Tombstones{streammanager.TombstonesPass, streammanager.TombstonesDrop, streammanager.TombstonesError} {
		f[fmt.Sprintf("tombstones: %s", mode)] = p.set.tombstones == mode
	}
	return f
}
