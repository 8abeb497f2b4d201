package app

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// clientAddress names clients by their address: that which the connection comes from, or
// where so many proxies are in front, the one that the first of these has added to
// X-Forwarded-For. Whatever is before that, anybody may have written. Of an address of
// IPv6, it is the network of 64 bits that one client has.
func clientAddress(proxies int) func(*http.Request) string {
	return func(r *http.Request) string {
		address := r.RemoteAddr
		if proxies > 0 {
			hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
			address = strings.TrimSpace(hops[max(len(hops)-proxies, 0)])
		}
		return clientAt(address)
	}
}

// clientAt names the client of an address, with or without a port.
func clientAt(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return "" // all that say nothing are one
	}
	ip = ip.Unmap()
	if ip.Is4() {
		return ip.String()
	}
	network, _ := ip.WithZone("").Prefix(64) // an address of IPv6 has it
	return network.String()
}
