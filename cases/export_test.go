package cases

// Declared is a test file as it is written.
type Declared = declared
