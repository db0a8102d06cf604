#!/usr/bin/env ruby
# answer.rb - publishes its identity on the channel that each message on demo/question names; through bccn pipe.
#   ruby answer.rb /run/bccnd/bus.sock
#   bccn pub demo/question demo/answer
# When the daemon restarts, bccn pipe connects and subscribes again.
require "json"

$stdout.sync = true
IO.popen(["bccn", "--socket", ARGV.fetch(0), "pipe", "--program", "answer"], "r+") do |bus|
  tell = ->(operation) { bus.puts(JSON.generate(operation)) }
  identity = ""
  tell.(op: "whoami")
  tell.(op: "subscribe", pattern: "demo/question", id: "subscribe")
  bus.each_line do |line|
    got = JSON.parse(line)
    case got["event"]
    when "identity"
      identity = got["src"]
      puts "I am #{identity}"
    when "message"
      next unless got["chan"] == "demo/question"
      puts "#{got["src"]} asks on #{got["payload"]}"
      tell.(op: "publish", chan: got["payload"], payload: identity)
    when "refused" then warn "refused: #{got["reason"]} #{got["about"]}"
    when "gap"
      warn got["lost"].zero? ? "messages may have been lost here: the daemon has crashed" : "#{got["lost"]} messages were lost here: this reader is too slow"
    when "away", "back" then warn "the daemon is #{got["event"]}"
    end
  end
end
exit $?.exitstatus || 1
