#include "pool/membership/members.hpp"

#include <algorithm>
#include <array>

#include "base/log.hpp"

namespace penstock::pool {

int role_rank(std::string_view role) {
  constexpr std::array<std::string_view, 5> roles{"read", "write", "compute", "admin", "server"};
  const auto it = std::find(roles.begin(), roles.end(), role);
  return it == roles.end() ? -1 : static_cast<int>(it - roles.begin());
}

fabric::Token role_token(const fabric::Token& secret, std::string_view role) {
  return secret.derive("role:" + std::string(role));
}

std::string pool_path(const std::string& pool, std::string_view what) {
  return "/pools/" + pool + "/" + std::string(what);
}

Members::Members(std::shared_ptr<fabric::Progress> progress, std::shared_ptr<directory::Directory> directory,
                 Options options)
    : progress_(std::move(progress)),
      directory_(std::move(directory)),
      options_(std::move(options)),
      view_changed_(*progress_) {}

Members::~Members() { close(); }

void Members::close() {
  progress_->call([this] {
    if (std::exchange(closed_, true)) return;
    watch_.reset();
    for (auto& [id, link] : links_)
      if (link.channel) link.channel->retire();  // what was viewed in place stays as long as it is held
    links_.clear();
    view_changed_.notify_all();
  });
}

void Members::start(std::function<void(const View&)> changed) {
  progress_->call([&] {
    changed_ = std::move(changed);
    const auto path = pool_path(options_.pool, "view");
    watch_ =
        directory_->watch(path, [weak = weak_from_this(), path](const std::vector<directory::DirectoryEvent>& events) {
          auto self = weak.lock();
          if (!self) return;
          for (const auto& event : events)
            if (!event.removed && event.entry.path == path) self->take(event.entry.value);
        });
  });
}

void Members::take(const std::string& json) {
  if (closed_) return;
  try {
    auto view = view_from_json(json);
    const auto present = placement();
    if (present && view.number <= present->view().number) return;
    auto next = std::make_shared<const Placement>(std::move(view));
    {
      std::lock_guard lock(mutex_);
      placement_ = next;
    }
    // Channels to servers that are gone end here, so that calls to them fail at once. One that was only out of reach for a
    // while must not hear of it while we read its memory in place: it would use that for something else.
    for (auto it = links_.begin(); it != links_.end();) {
      if (!next->view().find(it->first) && it->second.channel) {
        it->second.channel->retire();
        it = links_.erase(it);
      } else {
        ++it;
      }
    }
    if (changed_) changed_(next->view());
    std::erase_if(watchers_, [](const auto& watcher) { return watcher.first.expired(); });
    const auto watchers = watchers_;  // one may add another
    for (const auto& [owner, changed] : watchers)
      if (const auto alive = owner.lock()) changed(next->view());
    view_changed_.notify_all();
  } catch (const Error& error) {
    base::log(base::Level::error, "the pool's view cannot be read", {{"pool", options_.pool}, {"why", error.what()}});
  }
}

std::shared_ptr<const Placement> Members::placement() const {
  std::lock_guard lock(mutex_);
  return placement_;
}

Task<void> Members::read_view(base::Deadline deadline) {
  auto self = shared_from_this();
  auto path = pool_path(options_.pool, "view");
  auto entry = co_await directory_->get(std::move(path), deadline);
  if (entry) take(entry->value);
}

Task<std::shared_ptr<const Placement>> Members::at_least(std::uint64_t number, base::Deadline deadline) {
  auto self = shared_from_this();
  // Whoever asks again and again must come to an end here: nothing else would suspend it.
  if (closed_) throw Error(Errc::stream_closed, "pool " + options_.pool + ": closed");
  const auto enough = [&] {
    const auto present = placement();
    return present && present->view().number >= number;
  };
  if (enough()) co_return placement();
  // The watch usually brings it; asking makes sure. A directory that is dead leaves the view as it is.
  try {
    co_await read_view(earlier(deadline, base::Deadline(Timeout(2000))));
  } catch (const Error&) {
  }
  while (!enough()) {
    if (closed_) throw Error(Errc::stream_closed, "pool " + options_.pool + ": closed");
    const bool notified = co_await view_changed_.wait(deadline);
    if (!notified && !enough())
      throw Error(Errc::timeout, "pool " + options_.pool + " (directory " + directory_->describe() + ") has no view " +
                                     std::to_string(number) + " in time");
  }
  co_return placement();
}

Task<std::shared_ptr<const Placement>> Members::newer_than(std::uint64_t number, base::Deadline deadline) {
  auto self = shared_from_this();
  for (;;) {
    auto present = placement();
    if (present && present->view().number > number) co_return present;
    if (closed_) co_return present;
    const bool notified = co_await view_changed_.wait(deadline);
    if (!notified) co_return placement();
  }
}

Task<std::shared_ptr<rpc::Channel>> Members::connect(Member member, base::Deadline deadline) {
  auto self = shared_from_this();
  if (options_.connect) {
    std::string role = options_.role;
    co_return co_await options_.connect(std::move(member), std::move(role), deadline);
  }
  std::string realm = options_.pool + "/" + options_.role;
  rpc::ServerOptions bounds;
  bounds.plane = options_.plane;
  co_return co_await rpc::connect(progress_, std::move(member.endpoint), options_.token, std::move(realm),
                                  options_.services, deadline, fabric::Reach::automatic, std::move(bounds));
}

Task<std::shared_ptr<rpc::Channel>> Members::channel(Member member, base::Deadline deadline) {
  auto self = shared_from_this();
  for (;;) {
    if (closed_) throw Error(Errc::peer_lost, "pool " + options_.pool + ": closed");
    auto& link = links_[member.id];
    if (link.channel && link.channel->open()) co_return link.channel;
    if (!link.connecting) break;
    auto connecting = link.connecting;
    const bool notified = co_await connecting->wait(deadline);
    if (!notified) throw Error(Errc::timeout, "server " + member.name + " was not connected in time");
  }
  auto connecting = std::make_shared<fabric::Signal>(*progress_);
  links_[member.id].connecting = connecting;
  struct Done {
    Members& members;
    std::uint64_t id;
    std::shared_ptr<fabric::Signal> signal;
    ~Done() {
      if (auto it = members.links_.find(id); it != members.links_.end()) it->second.connecting.reset();
      signal->notify_all();
    }
  } done{*this, member.id, connecting};
  std::shared_ptr<rpc::Channel> channel;
  try {
    channel = co_await connect(member, deadline);
  } catch (const Error& error) {
    if (error.code() != Errc::authentication || !accepted_) throw;
    // The token is right: a process that the member has left its port to does not know it.
    throw Error(Errc::peer_lost, "another process is where server " + member.name + " was: " + error.what());
  }
  accepted_ = true;
  if (closed_) {
    channel->close();
    throw Error(Errc::peer_lost, "pool " + options_.pool + ": closed");
  }
  links_[member.id].channel = channel;
  co_return channel;
}

}  // namespace penstock::pool
