package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	wire "go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/asof/asof/storage/driver"
)

// Codes of MongoDB's errors that are told apart.
const (
	serverUnauthorized   = 13
	serverAuthFailed     = 18
	serverReadOnly       = 20
	serverNotPrimary     = 10107
	serverTooLarge       = 10334
	serverTooLargeUpdate = 17419
	serverTooLargeInsert = 17420
	serverNested         = 15
)

// wrap gives an error of the driver or the server the code that driver.Engine
// promises, and says what was being done. Errors that have a code keep it.
func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	var coded *driver.Error
	var conflict *driver.ConflictError
	var load *driver.LoadError
	if errors.As(err, &coded) || errors.As(err, &conflict) || errors.As(err, &load) {
		return err
	}
	var server mongo.ServerError
	isServer := errors.As(err, &server)
	has := func(codes ...int) bool {
		for _, code := range codes {
			if isServer && server.HasErrorCode(code) {
				return true
			}
		}
		return false
	}
	switch {
	case errors.Is(err, context.Canceled):
		return driver.Errorf(driver.CodeUnavailable, "%s: the request ended: %w", doing, err)
	case isNeverSent(err):
		return driver.Errorf(driver.CodeUnavailable, "%s: the MongoDB server cannot be reached: %w", doing, err)
	case mongo.IsTimeout(err):
		return driver.Errorf(driver.CodeUnavailable, "%s: the time was up: %w", doing, err)
	case has(serverUnauthorized):
		return driver.Errorf(driver.CodeUnavailable, "%s: the user of --store may not do this (it needs the role readWrite on the database): %w", doing, err)
	case has(serverAuthFailed), isAuth(err):
		return driver.Errorf(driver.CodeUnavailable, "%s: the user or the password of --store is wrong: %w", doing, err)
	case has(serverTooLarge, serverTooLargeUpdate, serverTooLargeInsert), isTooLarge(err):
		return driver.Errorf(driver.CodeInvalid, "%s: the document is too large for MongoDB: %w", doing, err)
	case has(serverNested):
		return driver.Errorf(driver.CodeInvalid, "%s: the conditions are nested too deeply: %w", doing, err)
	case has(serverReadOnly, serverNotPrimary):
		return driver.Errorf(driver.CodeUnavailable, "%s: the server takes no writes; name all members of the replica set in --store: %w", doing, err)
	case isUnreachable(err):
		return driver.Errorf(driver.CodeUnavailable, "%s: the MongoDB server cannot be reached: %w", doing, err)
	default:
		return driver.Errorf(driver.CodeInternal, "%s: %w", doing, err)
	}
}

func isTooLarge(err error) bool { return errors.Is(err, wire.ErrDocumentTooLarge) }

func isAuth(err error) bool {
	var refused *auth.Error
	return errors.As(err, &refused)
}

func isUnreachable(err error) bool {
	var connection topology.ConnectionError
	return mongo.IsNetworkError(err) || errors.As(err, &connection) || isNeverSent(err)
}

func invalidf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInvalid, format, args...)
}

func internalf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInternal, format, args...)
}

func errClosed() error {
	return driver.Errorf(driver.CodeUnavailable, "the store is closed")
}

// isNeverSent reports whether an error says that nothing was sent to a server.
func isNeverSent(err error) bool {
	var selection topology.ServerSelectionError
	var queue topology.WaitQueueTimeoutError
	var pool wire.RetryablePoolError // no connection, because others just broke
	return errors.As(err, &selection) || errors.As(err, &queue) || errors.As(err, &pool) || errors.Is(err, mongo.ErrClientDisconnected)
}
