package cli

// NothingLookedAt is what the summary of a replay says that has looked at nothing.
var NothingLookedAt = nothingLookedAt

// ShowReplay shows how far a replay has come.
var ShowReplay = showReplay

// MemoryFit is what the limit of memory goes by.
type MemoryFit = memoryFit

// NewMemoryFit is the fit at the start.
func NewMemoryFit(bound int64) *MemoryFit { return &memoryFit{bound: bound, limit: bound} }

// Look is what it does once a second.
func (f *memoryFit) Look(live int64, cycles uint64) bool { return f.look(live, cycles) }

// Limit is the limit that it came to.
func (f *memoryFit) Limit() int64 { return f.limit }
