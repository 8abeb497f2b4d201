package container

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/asof/asof/internal/app"
)

// compose is what docker-compose.yml may hold; anything else is an error.
type compose struct {
	Name     string             `yaml:"name"`
	Mongo    any                `yaml:"x-mongo"`
	Services map[string]service `yaml:"services"`
	Networks map[string]*struct {
		Internal bool `yaml:"internal"`
	} `yaml:"networks"`
	Volumes map[string]any `yaml:"volumes"`
}

type service struct {
	Build       string                                `yaml:"build"`
	Image       string                                `yaml:"image"`
	Command     []string                              `yaml:"command"`
	Environment map[string]string                     `yaml:"environment"`
	Ports       []string                              `yaml:"ports"`
	Networks    []string                              `yaml:"networks"`
	Volumes     []string                              `yaml:"volumes"`
	Restart     string                                `yaml:"restart"`
	Grace       string                                `yaml:"stop_grace_period"`
	ReadOnly    bool                                  `yaml:"read_only"`
	CapDrop     []string                              `yaml:"cap_drop"`
	Security    []string                              `yaml:"security_opt"`
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Health      *struct {
		Test        []string `yaml:"test"`
		Interval    string   `yaml:"interval"`
		Timeout     string   `yaml:"timeout"`
		Retries     int      `yaml:"retries"`
		StartPeriod string   `yaml:"start_period"`
	} `yaml:"healthcheck"`
}

func readCompose(t *testing.T) compose {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	// Compose replaces $NAME by variables of whoever runs it.
	if bytes.Contains(text, []byte("$")) {
		t.Error("docker-compose.yml has a $, which compose takes for a variable")
	}
	var c compose
	if err := yaml.UnmarshalWithOptions(text, &c, yaml.Strict()); err != nil {
		t.Fatal(yaml.FormatError(err, false, true))
	}
	return c
}

// Every name in the file is declared in it.
func TestComposeNames(t *testing.T) {
	c := readCompose(t)
	for name, s := range c.Services {
		if s.Build == "" && !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q: want NAME:TAG@sha256:DIGEST", name, s.Image)
		}
		for _, network := range s.Networks {
			if _, ok := c.Networks[network]; !ok {
				t.Errorf("%s: no network %q", name, network)
			}
		}
		for _, volume := range s.Volumes {
			if v, _, _ := strings.Cut(volume, ":"); !declared(c.Volumes, v) {
				t.Errorf("%s: no volume %q", name, v)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s: port %s is published to other machines", name, port)
			}
		}
		for other, on := range s.DependsOn {
			before, ok := c.Services[other]
			switch {
			case !ok:
				t.Errorf("%s depends on %s, which is not there", name, other)
			case on.Condition == "service_healthy" && before.Health == nil:
				t.Errorf("%s waits for %s to be healthy, which has no healthcheck", name, other)
			case on.Condition == "service_completed_successfully" && before.Restart != "no":
				t.Errorf("%s waits for the end of %s, which is restarted", name, other)
			case on.Condition != "service_healthy" && on.Condition != "service_completed_successfully":
				t.Errorf("%s depends on %s with the condition %q", name, other, on.Condition)
			}
		}
		if s.Health != nil {
			if len(s.Health.Test) < 2 || s.Health.Test[0] != "CMD" || s.Health.Retries < 1 {
				t.Errorf("%s: healthcheck %+v", name, s.Health)
			}
			for _, d := range []string{s.Health.Interval, s.Health.Timeout, s.Health.StartPeriod} {
				if n, err := time.ParseDuration(d); err != nil || n <= 0 {
					t.Errorf("%s: healthcheck: %q is no duration", name, d)
				}
			}
		}
	}
}

func declared[V any](m map[string]V, name string) bool {
	_, ok := m[name]
	return ok
}

// The replica set has one name, and one list of members that are services
// which keep their data, everywhere in the file.
func TestComposeReplicaSet(t *testing.T) {
	c := readCompose(t)
	uri, err := connstring.ParseAndValidate(c.Services["asof"].Environment["ASOF_STORE"])
	if err != nil {
		t.Fatal(err)
	}
	if uri.Database == "" {
		t.Error("ASOF_STORE names no database")
	}
	var members []string
	for name, s := range c.Services {
		if len(s.Command) == 0 || s.Command[0] != "mongod" {
			continue
		}
		members = append(members, name+":27017")
		if i := slices.Index(s.Command, "--replSet"); i < 0 || s.Command[i+1] != uri.ReplicaSet {
			t.Errorf("%s runs %v, asof looks for the replica set %q", name, s.Command, uri.ReplicaSet)
		}
		data := false
		for _, volume := range s.Volumes {
			data = data || strings.HasSuffix(volume, ":/data/db")
		}
		if !data || s.Health == nil || declared(c.Services["initiate"].DependsOn, name) != true {
			t.Errorf("%s needs a volume for its data, a healthcheck, and that the initiation waits for it: %+v", name, s)
		}
		if len(s.Networks) != 1 || !c.Networks[s.Networks[0]].Internal || len(s.Ports) > 0 {
			t.Errorf("%s has no password and can be reached from outside", name)
		}
	}
	slices.Sort(members)
	script := c.Services["initiate"].Command[len(c.Services["initiate"].Command)-1]
	var initiated []string
	for _, m := range regexp.MustCompile(`host: '([^']+)'`).FindAllStringSubmatch(script, -1) {
		initiated = append(initiated, m[1])
	}
	if len(members) != 3 || !slices.Equal(members, uri.Hosts) || !slices.Equal(members, initiated) {
		t.Errorf("the services are %v, asof knows %v, the replica set is initiated with %v", members, uri.Hosts, initiated)
	}
	if !strings.Contains(script, "_id: '"+uri.ReplicaSet+"'") {
		t.Errorf("the replica set is initiated under another name than %s", uri.ReplicaSet)
	}
}

// The variables in both files are flags of the program, with values that it
// takes; both files ask for its health in the same way.
func TestVariables(t *testing.T) {
	c := readCompose(t)
	final := readDockerfile(t)[1]
	serve := c.Services["asof"]
	command := append(serve.Command, final.one(t, "CMD").list(t)...)
	var help, errs bytes.Buffer
	m := app.Main{Stdin: strings.NewReader(""), Stdout: &help, Stderr: &errs, Now: time.Now}
	if done, err := m.ParseFlags(append(slices.Clone(command), "--help")); !done || err != nil {
		t.Fatalf("%v --help: %v", command, err)
	}
	for _, set := range []map[string]string{final.variables(t), serve.Environment} {
		for name, value := range set {
			if !strings.Contains(help.String(), "($"+name+")") {
				t.Errorf("%s is no variable of %v", name, command)
			}
			t.Setenv(name, value)
		}
	}
	m = app.Main{Stdin: strings.NewReader(""), Stdout: &help, Stderr: &errs, Now: time.Now}
	if _, err := m.ParseFlags(command); err != nil {
		t.Errorf("%v with the variables of the container: %v", command, err)
	}
	health := final.one(t, "HEALTHCHECK").list(t)
	if !slices.Equal(serve.Health.Test[1:], health) {
		t.Errorf("the healthcheck is %v in one file and %v in the other", serve.Health.Test[1:], health)
	}
	if entry := final.one(t, "ENTRYPOINT").list(t); health[0] != entry[0] {
		t.Errorf("the healthcheck runs %s, the container %s", health[0], entry[0])
	}
	m = app.Main{Stdin: strings.NewReader(""), Stdout: &help, Stderr: &errs, Now: time.Now}
	if _, err := m.ParseFlags(health[1:]); err != nil {
		t.Errorf("%v: %v", health, err)
	}
	_, port, _ := strings.Cut(final.variables(t)["ASOF_ADDR"], ":")
	if want := "127.0.0.1:" + port + ":" + port; !slices.Equal(serve.Ports, []string{want}) {
		t.Errorf("ports %v, want %s", serve.Ports, want)
	}
	// What was accepted is finished before the container is killed.
	grace, err := time.ParseDuration(serve.Grace)
	shutdown := regexp.MustCompile(`--shutdown-timeout=(\d+)s`).FindStringSubmatch(help.String())
	if err != nil || shutdown == nil {
		t.Fatalf("stop_grace_period %q: %v; --shutdown-timeout %v", serve.Grace, err, shutdown)
	}
	if seconds, err := strconv.Atoi(shutdown[1]); err != nil || grace <= time.Duration(seconds)*time.Second {
		t.Errorf("the container is killed after %v, but shutting down may take %d seconds", grace, seconds)
	}
}
