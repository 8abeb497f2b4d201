package container

import (
	"os/exec"
	"strings"
	"testing"
)

// fakeShell is what the script of the service initiate finds in mongosh: a
// server that answers rs.status one way after the other, and stays at the last.
// A word in capitals is the state of its first member, another one the name of
// an error.
const fakeShell = `
const statuses = STATUSES, initiated = INITIATED
let now = 0, asked = 0
const failed = name => Object.assign(new Error('the server says ' + name), {codeName: name})
const rs = {
  status: () => {
    const state = statuses[Math.min(statuses.length - 1, asked++)]
    if (/^[A-Z]+$/.test(state)) return {members: [{stateStr: state}, {stateStr: 'SECONDARY'}]}
    throw failed(state)
  },
  initiate: config => {
    console.log('rs.initiate ' + config._id + ' ' + config.members.map(m => m._id + '=' + m.host).join(' '))
    if (initiated !== '') throw failed(initiated)
    return {ok: 1}
  },
}
const print = console.log, sleep = ms => { now += ms }, quit = code => process.exit(code)
Date.now = () => now
`

// The script makes a set where there is none, leaves one as it is, waits for a
// primary, and gives up where there will be none, with the reason.
func TestInitiate(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node, which runs the script in place of mongosh: ", err)
	}
	command := readCompose(t).Services["initiate"].Command
	script := command[len(command)-1]
	const initiates, done = "rs.initiate rs0 0=mongo1:27017 1=mongo2:27017 2=mongo3:27017\n", "the replica set has a primary\n"
	for _, c := range []struct {
		name, statuses, initiated string
		ends                      bool // well
		want, without             string
	}{
		{"a new set", `["NotYetInitialized", "STARTUP", "SECONDARY", "PRIMARY"]`, "", true, initiates + done, ""},
		{"a set", `["PRIMARY"]`, "", true, done, "rs.initiate"},
		{"a set that elects", `["SECONDARY", "SECONDARY", "PRIMARY"]`, "", true, done, "rs.initiate"},
		{"a set that does not know its members yet", `["NotYetInitialized", "SECONDARY", "PRIMARY"]`, "AlreadyInitialized", true, done, ""},
		{"a server that is not ready", `["InterruptedAtShutdown", "PRIMARY"]`, "", true, done, "rs.initiate"},
		{"no primary", `["SECONDARY"]`, "", false, "no primary within a minute: none was elected", done},
		{"a server that refuses", `["Unauthorized"]`, "", false, "the server says Unauthorized", "rs.initiate"},
		{"a set that cannot be", `["NotYetInitialized"]`, "InvalidReplicaSetConfig", false, "the server says InvalidReplicaSetConfig", done},
	} {
		shell := strings.NewReplacer("STATUSES", c.statuses, "INITIATED", "'"+c.initiated+"'").Replace(fakeShell)
		out, err := exec.CommandContext(t.Context(), node, "-e", shell+script).CombinedOutput()
		said := strings.ReplaceAll(string(out), "initiating the replica set\n", "")
		if (err == nil) != c.ends || !strings.Contains(said, c.want) || c.without != "" && strings.Contains(said, c.without) {
			t.Errorf("%s: %v; want %q, without %q:\n%.2000s", c.name, err, c.want, c.without, out)
		}
	}
}
