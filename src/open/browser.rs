//! Where a browser would be: here, or at the other end of an SSH connection.

use std::env;

/// What tells where the person sits.
pub(super) struct Surroundings {
    /// Of an SSH connection, as sshd says it: the client's address and port, and then the server's.
    ssh: Option<String>,
    user: Option<String>,
    /// Whether windows can be opened.
    has_display: bool,
}

impl Surroundings {
    pub(super) fn of_this_process() -> Surroundings {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        Surroundings {
            ssh: set("SSH_CONNECTION"),
            user: set("USER"),
            has_display: cfg!(target_os = "macos") || set("DISPLAY").or_else(|| set("WAYLAND_DISPLAY")).is_some(),
        }
    }

    /// Whether a browser can be opened that the person sees.
    pub(super) fn has_browser(&self) -> bool {
        self.has_display && self.ssh.is_none()
    }

    /// What makes the port reachable at the other end of an SSH connection.
    pub(super) fn forward(&self, port: u16) -> Option<String> {
        let plain = |text: &&str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:%".contains(c));
        let server = self.ssh.as_deref()?.split_whitespace().nth(2).filter(plain)?;
        let user = self.user.as_deref().filter(plain).map(|user| format!("{user}@")).unwrap_or_default();
        Some(format!("ssh -N -L {port}:127.0.0.1:{port} {user}{server}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_ssh_there_is_a_tunnel_and_no_browser() {
        let here = Surroundings { ssh: None, user: Some("ann".into()), has_display: true };
        assert!(here.has_browser() && here.forward(9001).is_none());
        let there = Surroundings { ssh: Some("10.0.0.7 50122 10.0.0.1 22".into()), ..here };
        assert!(!there.has_browser());
        assert_eq!(there.forward(9001).unwrap(), "ssh -N -L 9001:127.0.0.1:9001 ann@10.0.0.1");
        let strange = Surroundings { ssh: Some("a b $(reboot) d".into()), ..there };
        assert_eq!(strange.forward(9001), None);
        assert!(!Surroundings { ssh: None, user: None, has_display: false }.has_browser());
    }
}
