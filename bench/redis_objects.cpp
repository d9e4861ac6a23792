// The same small objects in Redis, through hiredis: in batches of the same size; each thread has a connection and one batch under
// way, the list has one thread.
//
//   redis_objects --socket PATH --variant multi|pipeline [--count N] [--batch 1000] [--bytes 100] [--threads 1]
//
// multi: MSET and MGET of a batch. pipeline: a batch of SET and of GET in one write. Both list with SCAN COUNT batch. Keys
// are "rank/00001/var001/T", as long as those of pool_objects together. Durability is the server's (appendfsync).
#include <hiredis/hiredis.h>

#include <deque>
#include <memory>

#include "arguments.hpp"

namespace penstock::bench {
namespace {

constexpr std::size_t columns = 1000;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

class Redis {
 public:
  explicit Redis(const std::string& socket) : context_(redisConnectUnix(socket.c_str())) {
    if (context_ == nullptr || context_->err != 0) throw std::runtime_error("no Redis at " + socket);
  }
  ~Redis() { redisFree(context_); }
  Redis(const Redis&) = delete;
  Redis& operator=(const Redis&) = delete;

  void append(std::vector<const char*>& words, std::vector<std::size_t>& lengths) {
    if (redisAppendCommandArgv(context_, static_cast<int>(words.size()), words.data(), lengths.data()) != REDIS_OK)
      throw std::runtime_error("Redis: cannot send");
  }
  Reply next() {
    void* reply = nullptr;
    if (redisGetReply(context_, &reply) != REDIS_OK)
      throw std::runtime_error(std::string("Redis: ") + context_->errstr);
    Reply owned(static_cast<redisReply*>(reply));
    if (owned->type == REDIS_REPLY_ERROR) throw std::runtime_error(std::string("Redis: ") + owned->str);
    return owned;
  }

 private:
  redisContext* context_;
};

std::vector<std::string> keys_of(std::size_t count) {
  std::vector<std::string> keys;
  char key[40];
  for (std::size_t i = 0; i < count; ++i) {
    std::snprintf(key, sizeof key, "rank/%05zu/var%03zu/T", i / columns, i % columns);
    keys.emplace_back(key);
  }
  return keys;
}

// What one thread does, by its own connection.
class Objects {
 public:
  Objects(const std::string& socket, const std::vector<std::string>& keys, bool pipeline, std::size_t batch,
          std::size_t bytes)
      : redis_(socket), keys_(keys), pipeline_(pipeline), batch_(batch), bytes_(bytes) {}

  void put(std::size_t first, std::size_t some) {
    values_.assign(some * bytes_, 'x');
    for (std::size_t i = 0; i < some; ++i) {
      const std::uint64_t number = first + i;
      std::memcpy(values_.data() + i * bytes_, &number, sizeof number);
    }
    if (!pipeline_) word("MSET", 4);
    for (std::size_t i = 0; i < some; ++i) {
      if (pipeline_) word("SET", 3);
      word(keys_[first + i]);
      word(values_.data() + i * bytes_, bytes_);
      if (pipeline_) send();
    }
    if (!pipeline_) send();
    for (std::size_t i = 0; i < (pipeline_ ? some : 1); ++i) (void)redis_.next();
  }

  std::size_t list() {
    std::size_t listed = 0;
    const std::string size = std::to_string(batch_);
    std::string cursor = "0";
    do {
      word("SCAN", 4);
      word(cursor);
      word("COUNT", 5);
      word(size);
      send();
      const Reply reply = redis_.next();
      require(reply->type == REDIS_REPLY_ARRAY && reply->elements == 2, "a scan");
      cursor.assign(reply->element[0]->str, reply->element[0]->len);
      listed += reply->element[1]->elements;
    } while (cursor != "0");
    return listed;
  }

  void get(std::size_t first, std::size_t some) {
    if (!pipeline_) word("MGET", 4);
    for (std::size_t i = 0; i < some; ++i) {
      if (pipeline_) word("GET", 3);
      word(keys_[first + i]);
      if (pipeline_) send();
    }
    if (!pipeline_) send();
    if (pipeline_) {
      for (std::size_t i = 0; i < some; ++i) check(redis_.next().get(), first + i);
    } else {
      const Reply reply = redis_.next();
      require(reply->elements == some, "a reply");
      for (std::size_t i = 0; i < some; ++i) check(reply->element[i], first + i);
    }
  }

 private:
  void word(const char* text, std::size_t length) {
    words_.push_back(text);
    lengths_.push_back(length);
  }
  void word(const std::string& text) { word(text.data(), text.size()); }
  void send() {
    redis_.append(words_, lengths_);
    words_.clear();
    lengths_.clear();
  }
  void check(const redisReply* reply, std::size_t number) const {
    std::uint64_t word = 0;
    require(reply->type == REDIS_REPLY_STRING && reply->len == bytes_, "an object's size");
    std::memcpy(&word, reply->str, sizeof word);
    require(word == number, "an object");
  }

  Redis redis_;
  const std::vector<std::string>& keys_;
  const bool pipeline_;
  const std::size_t batch_, bytes_;
  std::vector<const char*> words_;
  std::vector<std::size_t> lengths_;
  std::string values_;
};

void run(const Arguments& arguments) {
  const std::string socket = arguments.text("socket"), variant = arguments.text("variant", "multi");
  const std::size_t count = arguments.number("count", 1'000'000), batch = arguments.number("batch", 1000);
  const std::size_t bytes = std::max<std::size_t>(8, arguments.number("bytes", 100));
  const std::size_t threads = arguments.number("threads", 1);
  arguments.check();
  const auto keys = keys_of(count);
  std::deque<Objects> all;  // of each thread
  for (std::size_t t = 0; t < threads; ++t) all.emplace_back(socket, keys, variant == "pipeline", batch, bytes);
  FigureLine line;
  std::atomic<std::size_t> putting{0}, getting{0};
  double start = now();
  in_batches(threads, count, batch,
             [&] { return [&mine = all[putting++]](std::size_t first, std::size_t some) { mine.put(first, some); }; });
  line.add("put_per_s", static_cast<double>(count) / (now() - start));
  start = now();
  const std::size_t listed = all.front().list();
  line.add("list_per_s", static_cast<double>(listed) / (now() - start));
  require(listed >= count, "the scan");  // SCAN may name a key twice
  start = now();
  in_batches(threads, count, batch,
             [&] { return [&mine = all[getting++]](std::size_t first, std::size_t some) { mine.get(first, some); }; });
  line.add("get_per_s", static_cast<double>(count) / (now() - start));
  line.add("client_rss_mb", peak_rss_mb());
  line.print();
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) { return penstock::bench::run_with_arguments(argc, argv, penstock::bench::run); }
