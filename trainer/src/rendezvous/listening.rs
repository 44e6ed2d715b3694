//! Where a rank listens: at the addresses that it was told, and nowhere else if that can be.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs},
};

use super::gate::warn;

/// Listens at every address of a host that is this machine. What a name means on its own machine is often not what it
/// means on others: one that only leads back here is listened for on all interfaces, which is said.
pub(super) fn at_host(host: &str, port: u16) -> io::Result<Vec<TcpListener>> {
    let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    addresses.sort();
    addresses.dedup();
    if !is_loopback(host) {
        addresses.retain(|address| !address.ip().is_loopback());
    }
    let mut listeners = Vec::new();
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            // Of another machine, or of a protocol that this one does not use.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => return Err(error),
        }
    }
    if listeners.is_empty() {
        let listener = anywhere(port)?;
        warn(&format!("rank 0 listens on all interfaces: {host} is not an address of this machine"));
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Whether a host has an address, as far as this machine knows.
pub(super) fn is_known(host: &str, port: u16) -> bool {
    (host, port).to_socket_addrs().is_ok_and(|mut addresses| addresses.next().is_some())
}

/// Listens on all interfaces.
pub(super) fn anywhere(port: u16) -> io::Result<TcpListener> {
    let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    TcpListener::bind(&all.map(|address| SocketAddr::from((address, port)))[..])
}

/// Whether all ranks are said to be on this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};

    use super::*;
    use crate::skipped::skipped;

    fn addresses(listeners: &[TcpListener]) -> Vec<IpAddr> {
        listeners.iter().map(|listener| listener.local_addr().unwrap().ip()).collect()
    }

    #[test]
    fn a_rank_listens_where_it_is_told() {
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(addresses(&at_host("127.0.0.1", 0).unwrap()), [here]);
        let by_name = addresses(&at_host("localhost", 0).unwrap());
        assert!(by_name.contains(&here) && by_name.iter().all(IpAddr::is_loopback), "{by_name:?}");
        // Documentation has this address, and no machine.
        let elsewhere = addresses(&at_host("203.0.113.7", 0).unwrap());
        assert!(elsewhere.iter().all(IpAddr::is_unspecified), "{elsewhere:?}");
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = at_host("127.0.0.1", taken.local_addr().unwrap().port()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn an_address_of_the_network_is_not_all_addresses() {
        // Nothing is sent; the address is the one that would be sent from.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let address = socket.connect("203.0.113.7:9").and_then(|()| socket.local_addr());
        let Ok(address) = address.map(|address| address.ip()) else {
            return skipped("network", &"there is no network");
        };
        let listeners = at_host(&address.to_string(), 0).unwrap();
        assert_eq!(addresses(&listeners), [address]);
        let port = listeners[0].local_addr().unwrap().port();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
