package mongotest

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

// Another database is no other place to look for users in.
func TestWithDatabase(t *testing.T) {
	for _, uri := range []string{
		"mongodb://127.0.0.1:27017",
		"mongodb://127.0.0.1:27017/?replicaSet=rs0",
		"mongodb://ann:s3cret@127.0.0.1:27017",
		"mongodb://ann:s3cret@127.0.0.1:27017/people?retryWrites=false",
		"mongodb://ann:s3%2Fcret@a:1,b:2,c:3/?replicaSet=rs0&authSource=people",
		"mongodb://ann:s3cret@127.0.0.1:27017/people?authMechanism=SCRAM-SHA-256",
		"mongodb://ann@127.0.0.1:27017/?authMechanism=MONGODB-X509&tls=true",
	} {
		before, err := connstring.ParseAndValidate(uri)
		if err != nil {
			t.Fatalf("%s: %v", uri, err)
		}
		changed, err := WithDatabase(uri, "another")
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		after, err := connstring.ParseAndValidate(changed)
		if err != nil {
			t.Errorf("%s became %s: %v", uri, changed, err)
			continue
		}
		// Where nobody logs in, there is no place to look.
		if after.Database != "another" || before.UsernameSet && after.AuthSource != before.AuthSource ||
			after.Username != before.Username || after.Password != before.Password || after.ReplicaSet != before.ReplicaSet || len(after.Hosts) != len(before.Hosts) {
			t.Errorf("%s became %s, with users in %q instead of %q", uri, changed, after.AuthSource, before.AuthSource)
		}
	}
	if changed, err := WithDatabase("mongodb://%zz", "another"); err == nil {
		t.Errorf("what is no URI became %s", changed)
	}
}
