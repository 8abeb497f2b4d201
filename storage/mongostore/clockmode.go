package mongostore

// mode is how a server takes part in the clock.
type mode int

const (
	// joining: other servers may not know of this one yet. Nothing is handed out.
	joining mode = iota
	// alone: no other server is there, and none begins before it has seen
	// that this one knows of it.
	alone
	// between: about to be shared; nothing is handed out.
	between
	// shared: every commit time, and every instant to read at, comes from the
	// clock document.
	shared
)
