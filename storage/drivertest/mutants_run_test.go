package drivertest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// mutantVar names the mutant that a child process runs the suite against.
const mutantVar = "ASOF_DRIVERTEST_MUTANT"

func TestMutant(t *testing.T) {
	m, ok := allMistakes()[os.Getenv(mutantVar)]
	if !ok {
		t.Skip("run by TestSuiteNoticesMistakes, in a process of its own")
	}
	Run(t, Harness{
		New: func(*testing.T) Opener {
			engine := m.mutant()
			return func(_ *testing.T, collections []driver.Collection, clock func() time.Time) driver.Engine {
				if engine.model == nil {
					engine.model = newModel(clock, collections)
				} else {
					engine.reopen(clock, collections)
					if engine.open != nil {
						engine.open(engine.model)
					}
				}
				if engine.bare {
					return engine
				}
				return engine.guard(engine)
			}
		},
	})
}

// TestSuiteNoticesMistakes runs the suite's tests against engines that have
// the mistake which the test is for; each must fail.
func TestSuiteNoticesMistakes(t *testing.T) {
	if raced {
		t.Skip("with the race detector the random tests try too little to notice everything")
	}
	for name, m := range allMistakes() {
		t.Run(name, func(t *testing.T) {
			group, test, _ := strings.Cut(m.caught, "/")
			// How soon it is noticed is a matter of luck: of the seed, and with goroutines
			// of what happens at the same time.
			const tries = 10
			var out []byte
			var err error
			for try := 0; try < tries && err == nil; try++ {
				child := exec.Command(os.Args[0], "-test.run=^TestMutant$/^"+group+"$/^"+test+"$", "-test.v", "-test.timeout=10m")
				child.Env = append(os.Environ(), mutantVar+"="+name, "ASOF_DRIVERTEST_SEED=1")
				out, err = child.CombinedOutput()
			}
			var exit *exec.ExitError
			switch {
			case err == nil:
				t.Errorf("%s does not notice it:\n%.2000s", m.caught, out)
			case !errors.As(err, &exit):
				t.Fatal(err)
			case !strings.Contains(string(out), "--- FAIL: TestMutant/"+m.caught):
				t.Errorf("%s did not fail, but something else did:\n%.2000s", m.caught, out)
			}
		})
	}
}
