package mongostore

import (
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

func checkValue(kind driver.Kind, value driver.Value) error {
	if _, ok := operand(kind, value); !ok {
		return invalidf("%v (%T) is not a value of kind %d", value, value, kind)
	}
	return nil
}

func checkPosition(p *driver.Position, order []driver.Order) error {
	if err := check.Position(p, order); p == nil || err != nil {
		return err
	}
	for i, o := range order {
		if p.Values[i] == nil {
			continue
		}
		if err := checkValue(o.Field.Kind, p.Values[i]); err != nil {
			return err
		}
	}
	return nil
}
