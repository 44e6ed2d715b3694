//! What those get who ask for metrics over HTTP.

use std::{io, net::SocketAddr, sync::Arc};

use super::{exposition::Form, follow::Published};
use crate::http::{Answers, Body, END, ParsedRequest, Reply, is_local};

const PATH: &str = "/metrics";

/// The newest metrics, where they are asked for.
pub(super) struct Scraped {
    published: Arc<Published>,
    at: SocketAddr,
}

impl Scraped {
    pub(super) fn of(published: &Arc<Published>, at: SocketAddr) -> Scraped {
        Scraped { published: Arc::clone(published), at }
    }
}

impl Answers for Scraped {
    fn reply(&self, said: &ParsedRequest<'_>) -> io::Result<Reply> {
        let head = match said.head() {
            Ok(head) => head,
            Err(refusal) => return Ok(refusal),
        };
        // Pages of a local browser can come here by names of their own, unless the whole network may.
        if self.at.ip().is_loopback() && !is_local(head.host, self.at.port()) {
            return Ok(Reply::refusal("403 Forbidden", "metrics are served to this machine by its own name only\n"));
        }
        if head.path.split('?').next() != Some(PATH) {
            return Ok(Reply::refusal("404 Not Found", "metrics are at /metrics\n"));
        }
        let form = Form::accepted(head.accept);
        let text: Arc<[u8]> = form.text(&self.published.latest()).into_bytes().into();
        let found = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nVary: Accept\r\nCache-Control: no-store\r\nContent-Length: {}\r\n{END}",
            form.content_type(),
            text.len()
        );
        Ok(match head.method {
            "GET" => Reply { head: found, body: Some(Body::Bytes(text)) },
            "HEAD" => Reply { head: found, body: None },
            _ => Reply::refusal("405 Method Not Allowed", "metrics can only be fetched\n"),
        })
    }
}
