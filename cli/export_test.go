package cli

// NothingLookedAt is what the summary of a replay says that has looked at nothing.
var NothingLookedAt = nothingLookedAt

// ShowReplay shows how far a replay has come.
var ShowReplay = showReplay
