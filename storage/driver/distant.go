package driver

// Distant is an Engine whose database is reached over a network.
type Distant interface {
	// Heard grows whenever anything comes from the database, whatever it answers:
	// an engine of one that works hears from it several times a second, also while
	// a call waits for its answer.
	Heard() int64
}
