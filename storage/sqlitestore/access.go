package sqlitestore

import "github.com/asof/asof/storage/driver"

type access struct{ ix *index }

func (c *collection) accessOf(driver.Filter) []access { return nil }
func (r *run) page() ([]*driver.Version, error)       { return r.scanPage() }
func (r *run) count() (int64, error) {
	t := &top{r: r}
	err := r.scan(r.collect(t))
	return int64(len(t.list)), err
}
