package mongotest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// Replies of explain in the shapes that MongoDB's manual documents.
func TestAccesses(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		want        []Access
	}{
		{
			"the classic engine",
			`{"explainVersion":"1","queryPlanner":{"namespace":"db.c","parsedQuery":{"stage":{"$eq":"IXSCAN"}},
			  "winningPlan":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","keyPattern":{"a":1},"indexName":"a_1","indexBounds":{"a":["[1,1]"]}}},
			  "rejectedPlans":[{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"b_1"}}]},"ok":1}`,
			[]Access{{"IXSCAN", "a_1"}},
		},
		{
			"the slot-based engine",
			`{"explainVersion":"2","queryPlanner":{"winningPlan":{"isCached":false,"queryPlan":{"stage":"GROUP","inputStage":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"a_1"}}},
			  "slotBasedPlan":{"slots":"$$RESULT=s7","stages":"[2] ixseek"}},"rejectedPlans":[]},"ok":1}`,
			[]Access{{"IXSCAN", "a_1"}},
		},
		{
			"an aggregation with stages of its own",
			`{"stages":[{"$cursor":{"queryPlanner":{"winningPlan":{"stage":"PROJECTION_SIMPLE","inputStage":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"a_1"}}},"rejectedPlans":[]}}},{"$unwind":{"path":"$l"}}],"ok":1}`,
			[]Access{{"IXSCAN", "a_1"}},
		},
		{
			"either of two indexes",
			`{"queryPlanner":{"winningPlan":{"stage":"SUBPLAN","inputStage":{"stage":"FETCH","inputStage":{"stage":"OR","inputStages":[{"stage":"IXSCAN","indexName":"a_1"},{"stage":"COLLSCAN"}]}}}},"ok":1}`,
			[]Access{{"IXSCAN", "a_1"}, {"COLLSCAN", ""}},
		},
		{
			"by _id, three ways",
			`{"queryPlanner":{"winningPlan":{"stage":"X","inputStages":[{"stage":"IDHACK"},{"stage":"EXPRESS_IXSCAN","keyPattern":"{ _id: 1 }","indexName":"_id_"},{"stage":"CLUSTERED_IXSCAN"}]}},"ok":1}`,
			[]Access{{"IDHACK", "_id_"}, {"EXPRESS_IXSCAN", "_id_"}, {"CLUSTERED_IXSCAN", "_id_"}},
		},
		{
			"an update",
			`{"queryPlanner":{"winningPlan":{"stage":"UPDATE","inputStage":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"_id_"}}}},"ok":1}`,
			[]Access{{"IXSCAN", "_id_"}},
		},
		{
			"a scan",
			`{"queryPlanner":{"winningPlan":{"stage":"SORT","inputStage":{"stage":"COLLSCAN","direction":"forward"}}},"ok":1}`,
			[]Access{{"COLLSCAN", ""}},
		},
		{
			"shards",
			`{"queryPlanner":{"winningPlan":{"stage":"SHARD_MERGE","shards":[{"shardName":"a","winningPlan":{"stage":"FETCH","inputStage":{"stage":"IXSCAN","indexName":"a_1"}}},
			  {"shardName":"b","winningPlan":{"stage":"COLLSCAN"}}]}},"ok":1}`,
			[]Access{{"IXSCAN", "a_1"}, {"COLLSCAN", ""}},
		},
	} {
		var reply bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(c.reply), false, &reply); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		got, err := Accesses(reply)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
	for _, reply := range []string{
		`{"ok":1,"queryPlanner":{"winningPlan":{"stage":"EOF"}}}`,
		`{"ok":1}`,
		`{"queryPlanner":{"winningPlan":{"stage":"COLLSCAN"}}}`,
	} {
		var raw bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(reply), false, &raw); err != nil {
			t.Fatal(err)
		}
		if got, err := Accesses(raw); err == nil {
			t.Errorf("%s: %v", reply, got)
		}
	}
}
