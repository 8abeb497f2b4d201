package lru

import "testing"

func TestCache(t *testing.T) {
	const each = 100
	c := New[string, int](3 * (each + entryBytes))
	for i, key := range []string{"a", "b", "c"} {
		c.Add(key, i, each)
	}
	c.Get("a")
	c.Peek("b")
	c.Add("d", 3, each) // b was used longest ago
	has := func(want string) {
		t.Helper()
		got := ""
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			if _, ok := c.Peek(key); ok {
				got += key
			}
		}
		if got != want {
			t.Errorf("there are %q, not %q", got, want)
		}
	}
	has("acd")
	c.Resize("d", each+1)
	has("ad")
	c.Resize("d", each)
	c.Add("a", 10, each)
	c.Add("c", 2, each)
	has("acd")
	if v, _ := c.Get("a"); v != 10 {
		t.Errorf("the value is %d, not the later one", v)
	}
	c.Resize("gone", each)
	c.Remove("a")
	c.Add("e", 4, each)
	has("cde")
	c.Add("b", 1, 3*each+2*entryBytes+1) // alone it has no room
	has("")
	if c.Len() != 0 || c.Bytes() != 0 {
		t.Errorf("%d values of %d bytes are left", c.Len(), c.Bytes())
	}
	c.Add("a", 0, each)
	c.Purge()
	if c.Len() != 0 || c.Bytes() != 0 {
		t.Errorf("%d values of %d bytes are left", c.Len(), c.Bytes())
	}
}
