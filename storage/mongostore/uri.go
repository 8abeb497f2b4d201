package mongostore

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"

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
	case strings.ContainsAny(parsed.Database, "/\\. \"$\x00") || len(parsed.Database) > maxDatabaseName:
		return nil, invalidf("the MongoDB URI names the database %q; a name has at most %d bytes, and none of / \\ . \" $ and spaces", parsed.Database, maxDatabaseName)
	case len(parsed.UnknownOptions) > 0:
		// The driver takes no notice of them, whatever they were to do: tlss=true.
		return nil, invalidf("the MongoDB URI has the option %s, which the driver does not know; correct or remove it", slices.Min(slices.Collect(maps.Keys(parsed.UnknownOptions))))
	}
	return parsed, nil
}

// maxDatabaseName is how long the name of a database may be, in bytes.
const maxDatabaseName = 63
