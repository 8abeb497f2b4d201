package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
)

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
