package sqlitestore

import "encoding/json"

// encodeNames writes a list of member names as they are stored: a JSON array,
// or nothing for none.
func encodeNames(names []string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	b, err := json.Marshal(names)
	return string(b), err
}

func decodeNames(b []byte) ([]string, error) {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return nil, internalf("stored list of changed names %q: %w", b, err)
	}
	return names, nil
}
