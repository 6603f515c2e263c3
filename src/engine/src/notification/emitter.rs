//! The stream of messages in the process.

use tokio::sync::broadcast;

use super::Message;

/// Maximum number of messages by which a slow subscriber may lag behind before it misses some.
const CAPACITY: usize = 1024;

/// Emits messages to all subscribers. Clones share the subscribers.
#[derive(Clone, Debug)]
pub struct Emitter(broadcast::Sender<Message>);

impl Default for Emitter {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl Emitter {
    /// Emits a message to all subscribers.
    pub fn emit(&self, message: Message) {
        // The only possible error is that there are no subscribers.
        let _ = self.0.send(message);
    }

    /// Returns a receiver of all later messages.
    pub fn subscribe(&self) -> broadcast::Receiver<Message> {
        self.0.subscribe()
    }
}
