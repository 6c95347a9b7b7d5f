package keychain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Names of the Secret Service API 0.2, freedesktop.org.
const (
	serviceName      = "org.freedesktop.secrets"
	servicePath      = dbus.ObjectPath("/org/freedesktop/secrets")
	loginPath        = dbus.ObjectPath("/org/freedesktop/secrets/collection/login")
	serviceInterface = "org.freedesktop.Secret.Service"
)

// ready checks, without starting or prompting anything, that go-keyring's next call will find an unlocked keyring.
func ready(ctx context.Context) error {
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") == "autolaunch:" || !haveBusAddress() {
		return ErrNoBus // go-keyring would now run dbus-launch, and leak the daemon that it starts
	}
	conn, err := dbus.SessionBusPrivateNoAutoStartup(dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("%w (%w)", ErrNoBus, err)
	}
	defer conn.Close()
	if err := handshake(conn); err != nil {
		return fmt.Errorf("%w (%w)", ErrNoBus, err)
	}
	secrets := conn.Object(serviceName, servicePath)
	collection, err := collectionOf(ctx, secrets)
	if err != nil {
		return named(err)
	}
	var locked dbus.Variant
	err = conn.Object(serviceName, collection).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0,
		"org.freedesktop.Secret.Collection", "Locked").Store(&locked)
	if err != nil {
		return named(err)
	}
	if is, ok := locked.Value().(bool); !ok || is {
		return ErrCollectionLocked
	}
	return nil
}

func handshake(conn *dbus.Conn) error {
	if err := conn.Auth(nil); err != nil {
		return err
	}
	return conn.Hello()
}

// haveBusAddress reports whether godbus will find an address by itself, by the same rule.
func haveBusAddress() bool {
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return true
	}
	directory := fmt.Sprintf("/run/user/%d/", os.Getuid())
	for _, name := range []string{"bus", "dbus-session"} {
		if _, err := os.Stat(directory + name); err == nil {
			return true
		}
	}
	return false
}

// collectionOf finds the keyring that go-keyring will use: "login" if there is one, else the default.
func collectionOf(ctx context.Context, secrets dbus.BusObject) (dbus.ObjectPath, error) {
	var all dbus.Variant
	err := secrets.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, serviceInterface, "Collections").Store(&all)
	if err != nil {
		return "", err
	}
	paths, _ := all.Value().([]dbus.ObjectPath)
	for _, path := range paths {
		if path == loginPath {
			return path, nil
		}
	}
	var path dbus.ObjectPath
	if err := secrets.CallWithContext(ctx, serviceInterface+".ReadAlias", 0, "default").Store(&path); err != nil {
		return "", err
	}
	if path == "/" || path == "" {
		return "", ErrNoCollection
	}
	return path, nil
}

// named turns D-Bus's word for an absent service into ours.
func named(err error) error {
	var remote dbus.Error
	if errors.As(err, &remote) {
		switch remote.Name {
		case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner":
			return ErrNoService
		}
		if strings.HasPrefix(remote.Name, "org.freedesktop.DBus.Error.Spawn.") {
			return fmt.Errorf("%w (%w)", ErrNoService, err)
		}
	}
	if errors.Is(err, dbus.ErrClosed) || errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("%w (%w)", ErrNoBus, err)
	}
	return err
}
