#include "transport/tcp/looped_link.hpp"

#include <sys/epoll.h>

namespace penstock::transport {

LoopedLink::LoopedLink(std::shared_ptr<SocketLoop> loop, LinkSide side)
    : loop_(std::move(loop)),
      peer_name_(std::move(side.peer_name)),
      link_(std::move(side.socket), std::move(side.source)),
      on_end_(std::move(side.on_end)) {}

void LoopedLink::start() {
  loop_->post([self = shared_from_this()] {
    if (!self->ended_) self->loop_->add(self, self->link_.socket());
  });
}

void LoopedLink::submit(TransferPtr transfer) {
  loop_->post([self = shared_from_this(), transfer = std::move(transfer)] {
    self->link_.submit(transfer);
    if (self->ended_) self->link_.end(Error(Errc::peer_lost, self->peer_name_ + " is gone"));
    else if (!self->watches_writes_) self->advance(false);
  });
}

void LoopedLink::close() {
  loop_->post([self = shared_from_this()] {
    self->on_end_ = nullptr;
    self->end(Error(Errc::peer_lost, self->peer_name_ + ": the channel is closed"));
  });
}

void LoopedLink::end(const Error& error) {
  if (std::exchange(ended_, true)) return;
  const auto self = shared_from_this();
  loop_->remove(*this, link_.socket());
  link_.end(error);
  if (const auto tell = std::exchange(on_end_, nullptr)) tell(error);
}

void LoopedLink::on_events(std::uint32_t events) { advance((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0); }

// What goes wrong with one peer (there may be no memory for what it asks) ends its link only.
void LoopedLink::advance(bool readable) {
  if (ended_) return;
  const auto self = shared_from_this();
  try {
    link_.advance(readable);
    if (ended_ || watches_writes_ == link_.wants_write()) return;
    watches_writes_ = !watches_writes_;
    loop_->watch(*this, link_.socket(), true, watches_writes_);
  } catch (const Error& error) {
    end(error.in(peer_name_));
  } catch (const std::exception& error) {
    end(Error(Errc::internal, peer_name_ + ": " + error.what()));
  }
}

}  // namespace penstock::transport
