package mongostore

import (
	"errors"
	"net"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/asof/asof/storage/driver"
)

// CheckURI says what is wrong with a URI that Open is to be given, without
// connecting to the server; for mongodb+srv:// its hosts are looked up. Errors:
// CodeInvalid; CodeUnavailable when the hosts cannot be looked up. They do not
// show a password.
func CheckURI(uri string) error {
	_, err := parseURI(uri)
	return err
}

func parseURI(uri string) (*connstring.ConnString, error) {
	parsed, err := connstring.ParseAndValidate(uri)
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup):
		return nil, driver.Errorf(driver.CodeUnavailable, "the MongoDB server cannot be found: %w", err)
	case err != nil:
		return nil, invalidf("the MongoDB URI is not valid: %w", err)
	case parsed.Database == "":
		return nil, invalidf("the MongoDB URI names no database; add one, such as mongodb://localhost:27017/asof")
	}
	return parsed, nil
}
