package plantest

import "math/rand/v2"

// Choices are the decisions behind a history or an operation: the same ones
// lead to the same result. They come from a seed, or from bytes that a fuzzer
// changes; when these are used up, every further choice is the first.
type Choices struct {
	random *rand.Rand
	bytes  []byte
	spent  bool // the bytes are
}

// Seeded returns the choices that belong to two numbers: that of a run, and
// that of something in it.
func Seeded(seed, number uint64) *Choices {
	return &Choices{random: rand.New(rand.NewPCG(seed, number))}
}

// FromBytes returns the choices that bytes stand for.
func FromBytes(b []byte) *Choices { return &Choices{bytes: b} }

// Below chooses one of the numbers from 0 to n-1; 0 where n is below 2.
func (c *Choices) Below(n int) int {
	if n < 2 {
		return 0
	}
	if c.random != nil {
		return c.random.IntN(n)
	}
	value := 0
	for most := n - 1; most > 0; most >>= 8 {
		if len(c.bytes) == 0 {
			c.spent = true
			return 0
		}
		value = value<<8 | int(c.bytes[0])
		c.bytes = c.bytes[1:]
	}
	return value % n
}

// Chance is true once in n times; never when the bytes are used up, so that
// what is made of them ends.
func (c *Choices) Chance(n int) bool { return c.Below(n) == n-1 && !c.spent }

// OneOf chooses an element of a list, which is not empty.
func OneOf[T any](c *Choices, list []T) T { return list[c.Below(len(list))] }
