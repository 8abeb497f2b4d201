package mongotest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

// Messages of MongoDB's wire protocol, as far as a client and a server of today
// exchange them: OP_MSG, and OP_QUERY with OP_REPLY for the first hello.
const (
	opQuery = wiremessage.OpCode(2004)

	headerSize  = 16
	longestWire = 48_000_000 + headerSize // maxMessageSizeBytes
)

// message is one message, whole, as it came.
type message struct {
	id, to int32 // its own number, and that of the message that it answers
	op     wiremessage.OpCode
	whole  []byte
}

func readMessage(r io.Reader) (*message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size, id, to, op, _, _ := wiremessage.ReadHeader(header[:])
	if size < headerSize || size > longestWire {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	whole := make([]byte, size)
	copy(whole, header[:])
	_, err := io.ReadFull(r, whole[headerSize:])
	return &message{id: id, to: to, op: op, whole: whole}, err
}

var errMalformed = errors.New("a malformed message")

// moreToCome reports whether the sender expects no reply, or sends another
// reply to the same command.
func (m *message) moreToCome() bool {
	return m.op == wiremessage.OpMsg && wiremessage.IsMsgMoreToCome(m.whole)
}

// document is the command or the reply that a message carries; what an OP_MSG
// has in sections of their own is left out.
func (m *message) document() (bson.Raw, error) {
	var doc bsoncore.Document
	ok := false
	switch rest := m.whole[headerSize:]; m.op {
	case wiremessage.OpMsg:
		doc, _ = m.sections()
		ok = doc != nil
	case opQuery: // flags, a name that ends with NUL, and two numbers
		_, rest, ok = bytes.Cut(rest[min(4, len(rest)):], []byte{0})
		if ok = ok && len(rest) >= 8; ok {
			doc, _, ok = bsoncore.ReadDocument(rest[8:])
		}
	case wiremessage.OpReply:
		if ok = len(rest) >= 20; ok { // flags, cursor, and two numbers
			doc, _, ok = wiremessage.ReadReplyDocument(rest[20:])
		}
	default:
	}
	if !ok {
		return nil, errMalformed
	}
	return bson.Raw(doc), nil
}

// sections are the document of an OP_MSG, and the lists of documents that it has beside.
func (m *message) sections() (document bsoncore.Document, lists map[string][]bsoncore.Document) {
	lists = make(map[string][]bsoncore.Document)
	_, rest, ok := wiremessage.ReadMsgFlags(m.whole[headerSize:])
	for ok && len(rest) > 0 {
		var kind wiremessage.SectionType
		switch kind, rest, ok = wiremessage.ReadMsgSectionType(rest); {
		case ok && kind == wiremessage.SingleDocument:
			document, rest, ok = wiremessage.ReadMsgSectionSingleDocument(rest)
		case ok && kind == wiremessage.DocumentSequence:
			var name string
			var list []bsoncore.Document
			name, list, rest, ok = wiremessage.ReadMsgSectionDocumentSequence(rest)
			lists[name] = list
		default: // a checksum
			ok = false
		}
	}
	return document, lists
}

// reply is a message that answers another with a document.
func (m *message) reply(document any) ([]byte, error) {
	doc, err := bson.Marshal(document)
	if err != nil {
		return nil, err
	}
	op, body := wiremessage.OpMsg, wiremessage.AppendMsgSectionType(wiremessage.AppendMsgFlags(nil, 0), wiremessage.SingleDocument)
	if m.op == opQuery {
		op, body = wiremessage.OpReply, wiremessage.AppendReplyNumberReturned(make([]byte, 16), 1)
	}
	return append(append(wiremessage.AppendHeader(nil, int32(headerSize+len(body)+len(doc)), m.id, m.id, op), body...), doc...), nil
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
