package sqlitestore

import "encoding/json"

// encodeNames writes a list of member names as they are stored: a JSON array,
// or nothing for none.
func encodeNames(names []string) (string, error) {
	if len(names) == 0 {
		return "", nil
	}
	b, ok := appendNames(make([]byte, 0, 128), names)
	if !ok {
		var err error
		if b, err = json.Marshal(names); err != nil {
			return "", err
		}
	}
	return string(b), nil
}

// appendNames is json.Marshal for names of letters, digits and _ only.
func appendNames(dst []byte, names []string) (_ []byte, ok bool) {
	for i, name := range names {
		for _, c := range []byte(name) {
			if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '_' {
				return dst, false
			}
		}
		separator := byte(',')
		if i == 0 {
			separator = '['
		}
		dst = append(append(append(dst, separator, '"'), name...), '"')
	}
	return append(dst, ']'), true
}

func decodeNames(b []byte) ([]string, error) {
	var names []string
	if err := json.Unmarshal(b, &names); err != nil {
		return nil, internalf("stored list of changed names %q: %w", b, err)
	}
	return names, nil
}
