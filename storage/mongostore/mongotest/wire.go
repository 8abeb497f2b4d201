package mongotest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Messages of MongoDB's wire protocol, as far as a client and a server of today
// exchange them: OP_MSG, and OP_QUERY with OP_REPLY for the first hello.
const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1

	headerSize  = 16
	longestWire = 48_000_000 + headerSize // maxMessageSizeBytes
)

// message is one message, whole, as it came.
type message struct {
	id, to int32 // its own number, and that of the message that it answers
	op     int32
	whole  []byte
}

func readMessage(r io.Reader) (*message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := int32(binary.LittleEndian.Uint32(header[0:]))
	if size < headerSize || size > longestWire {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	whole := make([]byte, size)
	copy(whole, header[:])
	if _, err := io.ReadFull(r, whole[headerSize:]); err != nil {
		return nil, err
	}
	return &message{
		id: int32(binary.LittleEndian.Uint32(header[4:])), to: int32(binary.LittleEndian.Uint32(header[8:])),
		op: int32(binary.LittleEndian.Uint32(header[12:])), whole: whole,
	}, nil
}

var errMalformed = errors.New("a malformed message")

// moreToCome reports whether the sender expects no reply, or sends another
// reply to the same command.
func (m *message) moreToCome() bool {
	return m.op == opMsg && len(m.whole) >= headerSize+4 && binary.LittleEndian.Uint32(m.whole[headerSize:])&flagMoreToCome != 0
}

// document is the command or the reply that a message carries; what an OP_MSG
// has in sections of their own is left out.
func (m *message) document() (bson.Raw, error) {
	body := m.whole[headerSize:]
	switch m.op {
	case opMsg:
		return sectionZero(body)
	case opQuery: // flags, a name that ends with NUL, two numbers
		if len(body) < 4 {
			return nil, errMalformed
		}
		end := bytes.IndexByte(body[4:], 0)
		if end < 0 || len(body) < 4+end+1+8 {
			return nil, errMalformed
		}
		return firstDocument(body[4+end+1+8:])
	case opReply: // flags, cursor, two numbers
		if len(body) < 20 {
			return nil, errMalformed
		}
		return firstDocument(body[20:])
	default:
		return nil, fmt.Errorf("a message of the unknown kind %d", m.op)
	}
}

// sectionZero finds the document of an OP_MSG among its sections.
func sectionZero(body []byte) (bson.Raw, error) {
	if len(body) < 4 {
		return nil, errMalformed
	}
	rest := body[4:]
	if binary.LittleEndian.Uint32(body)&flagChecksum != 0 && len(rest) >= 4 {
		rest = rest[:len(rest)-4]
	}
	for len(rest) > 5 {
		kind := rest[0]
		rest = rest[1:]
		size := int(int32(binary.LittleEndian.Uint32(rest)))
		if size < 5 || size > len(rest) {
			return nil, errMalformed
		}
		if kind == 0 {
			return rest[:size], nil
		}
		rest = rest[size:]
	}
	return nil, errMalformed
}

func firstDocument(b []byte) (bson.Raw, error) {
	if len(b) < 5 {
		return nil, errMalformed
	}
	size := int(int32(binary.LittleEndian.Uint32(b)))
	if size < 5 || size > len(b) {
		return nil, errMalformed
	}
	return b[:size], nil
}

// reply is a message that answers another with a document.
func (m *message) reply(document any) ([]byte, error) {
	doc, err := bson.Marshal(document)
	if err != nil {
		return nil, err
	}
	op := int32(opMsg)
	body := append([]byte{0, 0, 0, 0, 0}, doc...) // no flags, section 0
	if m.op == opQuery {
		op = opReply
		body = append(make([]byte, 16), 1, 0, 0, 0) // one document
		body = append(body, doc...)
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(headerSize+len(body)))
	head = binary.LittleEndian.AppendUint32(head, uint32(m.id))
	head = binary.LittleEndian.AppendUint32(head, uint32(m.id))
	head = binary.LittleEndian.AppendUint32(head, uint32(op))
	return append(head, body...), nil
}

// Command is what a client asks of a server.
type Command struct {
	Name  string   // such as find
	Body  bson.Raw // without what is sent in sections of its own, such as documents to insert
	Bytes int      // of the whole message

	message *message
}

// Collection is the collection that the command is about; empty where it names none.
func (c Command) Collection() string {
	name, _ := c.Body.Lookup(c.Name).StringValueOK()
	return name
}

// Hello reports whether it is the question of what the server is, under any of
// its names.
func (c Command) Hello() bool {
	return c.Name == "hello" || c.Name == "isMaster" || c.Name == "ismaster"
}

func (m *message) command() (Command, error) {
	body, err := m.document()
	if err != nil {
		return Command{}, err
	}
	first, err := body.IndexErr(0)
	if err != nil {
		return Command{}, errMalformed
	}
	if m.op == opQuery && first.Key() == "$query" {
		inner, ok := first.Value().DocumentOK()
		if !ok {
			return Command{}, errMalformed
		}
		body = inner
		if first, err = body.IndexErr(0); err != nil {
			return Command{}, errMalformed
		}
	}
	return Command{Name: first.Key(), Body: body, Bytes: len(m.whole), message: m}, nil
}

// sequences are the lists of documents that an OP_MSG has in sections of their own.
func (m *message) sequences() (lists bson.D) {
	if m.op != opMsg {
		return nil
	}
	for rest := m.whole[headerSize+4:]; len(rest) > 5; {
		kind, size := rest[0], int(binary.LittleEndian.Uint32(rest[1:]))
		if size < 5 || size >= len(rest) {
			break
		}
		section := rest[5 : 1+size]
		rest = rest[1+size:]
		if kind != 1 {
			continue
		}
		name, documents, _ := bytes.Cut(section, []byte{0})
		var list bson.A
		for len(documents) > 0 {
			raw, err := firstDocument(documents)
			var document bson.D
			if err != nil || bson.Unmarshal(raw, &document) != nil {
				return nil
			}
			list, documents = append(list, document), documents[len(raw):]
		}
		lists = append(lists, bson.E{Key: string(name), Value: list})
	}
	return lists
}

// Failure is the document with which a server says that a command failed.
func Failure(code int32, name, text string, labels ...string) bson.D {
	d := bson.D{
		{Key: "ok", Value: 0.0}, {Key: "errmsg", Value: text}, {Key: "code", Value: code}, {Key: "codeName", Value: name},
	}
	if len(labels) > 0 {
		d = append(d, bson.E{Key: "errorLabels", Value: labels})
	}
	return d
}
