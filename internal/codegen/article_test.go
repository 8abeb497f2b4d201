package codegen

import "testing"

func TestArticle(t *testing.T) {
	for name, want := range map[string]string{
		"Project": "a", "Article": "an", "Order": "an", "User": "a", "Usage": "a", "Unit": "a", "union": "a", "Utility": "a", "Event": "an",
		"Euro": "a", "Update": "an", "Upload": "an", "UnimportantThing": "an", "Hour": "an", "House": "a", "OneTimeCode": "a", "Image": "an",
	} {
		if got := article(name); got != want+" "+name {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
