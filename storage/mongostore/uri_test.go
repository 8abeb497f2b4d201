package mongostore_test

import (
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// A URI with an option that the driver cannot do anything with, or would take no
// notice of, is refused before any server is asked.
func TestOptionsOfURI(t *testing.T) {
	for _, c := range []struct{ options, text string }{
		{"readPreference=nonsense", "unknown read preference nonsense"},
		{"minPoolSize=5&maxPoolSize=2", "minPoolSize"},
		{"minPoolSize=200", "minPoolSize"},
		{"heartbeatFrequencyMS=1", "heartbeatFrequencyMS"},
		{"maxStalenessSeconds=100", "read preference"},
		{"readPreferenceTags=dc:ny", "read preference"},
		{"tlsCAFile=/nope", "open /nope"},
		{"tlsCertificateKeyFile=/nope&tlsCertificateKeyFilePassword=s3cret", "open /nope"},
		{"authMechanism=MONGODB-OIDC", "ENVIRONMENT"},
		{"wtimeoutMS=5", "has the option wtimeoutms, which"},
		{"proxyHost=h&proxyPassword=s3cret", "has the option proxyhost, which"},
		{"readConcernLevel=s3cret", "readConcernLevel"},
		{"compressors=snappy,s3cret", "compressor"},
		{"serverMonitoringMode=s3cret", `invalid value for "serverMonitoringMode"`},
		{"appName=s3cret%zz", "invalid option value"},
		{"readConcernLevel=local&compressors=zstd,zlib,snappy&readPreference=secondary&maxStalenessSeconds=100&w=1&minPoolSize=5&tls=true", ""},
	} {
		err := mongostore.CheckURI("mongodb://localhost/asof?" + c.options)
		if c.text == "" {
			if err != nil {
				t.Errorf("%s: %v", c.options, err)
			}
			continue
		}
		if driver.CodeOf(err) != driver.CodeInvalid || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v (%q), want %q", c.options, err, driver.CodeOf(err), c.text)
		}
	}
}
